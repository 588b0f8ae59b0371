//! The Interrupt Translation Service (IHI 0069H, "The ITS register descriptions" and "ITS commands"): turns a message
//! (device id, event id) into an LPI of a CPU.

mod command;
mod registers;

pub use command::{Command, Opcode, RedistributorBase};
pub use registers::{
    BASER, Base, CBASER, COMMAND_BYTES, CREADR, CTLR, CWRITER, CommandBase, Control, FRAME_BYTES, IIDR, PIDR2, Pointer,
    REGION_BYTES, TRANSLATER, TYPER, TableType, Type,
};
