//! Parser of operands: registers, constants, special registers, addresses.

use crate::error::PtxError;
use crate::ir::{Base, Class, Guard, Operand, Reg, Space, Special, Ty, window};
use crate::kernel::Parser;
use crate::kernel::spelling::{bits, class};
use crate::kernel::symbols::Symbol;
use crate::lex::Token;
use crate::literal::Literal;
use crate::variable;

/// Required relation of a register's width to an operand's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// The register is as wide as the type. Types of 8 bits have no registers, and use wider ones.
    Same,
    /// The register is at least as wide as the type.
    AtLeast,
}

/// Content of an operand in brackets, before its state space is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParsedAddress {
    /// An address in memory. `space` is that of the variable, if it has one.
    Memory { space: Option<Space>, base: Base, offset: i64 },
    /// A parameter of a call, in a register.
    CallParam(Reg),
    /// A parameter of a call, in local memory.
    CallMemory { base: Base, offset: i64 },
}

/// Finds a special register by name. Returns it with its width in bits, or `None` if there is no such name.
fn special(name: &[u8]) -> Option<(Special, u32)> {
    let (name, axis) = match name.strip_prefix(b"%")? {
        [name @ .., b'.', axis @ b'x'..=b'z'] => (name, Some(axis - b'x')),
        name => (name, None),
    };
    let with_axis = axis.and_then(|axis| match name {
        b"tid" => Some(Special::Tid(axis)),
        b"ntid" => Some(Special::Ntid(axis)),
        // A cluster has one block.
        b"ctaid" | b"clusterid" => Some(Special::Ctaid(axis)),
        b"nctaid" | b"nclusterid" => Some(Special::Nctaid(axis)),
        _ => None,
    });
    if axis.is_some() {
        return with_axis.map(|special| (special, 32));
    }
    Some(match name {
        b"laneid" => (Special::LaneId, 32),
        b"warpid" => (Special::WarpId, 32),
        b"nwarpid" => (Special::NWarpId, 32),
        b"smid" => (Special::SmId, 32),
        b"nsmid" => (Special::NSmId, 32),
        b"gridid" => (Special::GridId, 64),
        b"lanemask_eq" => (Special::LaneMaskEq, 32),
        b"lanemask_le" => (Special::LaneMaskLe, 32),
        b"lanemask_lt" => (Special::LaneMaskLt, 32),
        b"lanemask_ge" => (Special::LaneMaskGe, 32),
        b"lanemask_gt" => (Special::LaneMaskGt, 32),
        b"clock" => (Special::Clock, 32),
        b"clock64" => (Special::Clock64, 64),
        b"globaltimer" => (Special::GlobalTimer, 64),
        b"dynamic_smem_size" => (Special::DynamicSmemSize, 32),
        b"total_smem_size" => (Special::TotalSmemSize, 32),
        _ => {
            let number = std::str::from_utf8(name.strip_prefix(b"envreg")?).ok()?;
            let number: u8 = number.parse().ok().filter(|number| *number < 32)?;
            (Special::EnvReg(number), 32)
        }
    })
}

/// Returns the value of a special register that describes the place of a block in its cluster. A cluster has
/// one block.
fn in_cluster(name: &[u8]) -> Option<u64> {
    match name {
        b"%cluster_ctarank" | b"%cluster_ctaid.x" | b"%cluster_ctaid.y" | b"%cluster_ctaid.z" => Some(0),
        b"%cluster_nctarank" | b"%cluster_nctaid.x" | b"%cluster_nctaid.y" | b"%cluster_nctaid.z" => Some(1),
        _ => None,
    }
}

impl Parser<'_> {
    /// Reads a comma, which separates operands.
    pub fn comma(&mut self) -> Result<(), PtxError> {
        self.tokens.expect(b',')
    }

    /// Finds the meaning of a name: first in the kernel's scopes, then in the module. Returns `None` if
    /// nothing declares it.
    pub fn symbol(&mut self, name: &[u8]) -> Result<Option<Symbol>, PtxError> {
        match self.scopes.find(name) {
            Some(symbol) => Ok(Some(symbol)),
            None => self.module_symbol(name),
        }
    }

    /// Reads a register whose width suits the type. Fails with [`PtxError::Undeclared`] if no register has
    /// this name.
    pub fn reg(&mut self, ty: Ty, width: Width) -> Result<Reg, PtxError> {
        if let Token::Word(name) = self.tokens.peek() {
            match self.scopes.find(name) {
                Some(Symbol::Reg(reg)) => {
                    self.fits(reg, ty, width)?;
                    self.tokens.next()?;
                    return Ok(reg);
                }
                None if name[0] == b'%' && special(name).is_none() => {
                    return Err(self.tokens.undeclared(self.tokens.place(), name));
                }
                _ => {}
            }
        }
        Err(self.tokens.expected("a register"))
    }

    fn fits(&self, reg: Reg, ty: Ty, width: Width) -> Result<(), PtxError> {
        let (have, need) = (self.scopes.class(reg), class(ty));
        let fits = match width {
            _ if have == Class::Pred || need == Class::Pred => have == need,
            Width::Same if ty.bytes() > 1 => have == need,
            _ => bits(have) >= bits(need),
        };
        if fits {
            return Ok(());
        }
        let least = if width == Width::Same { "" } else { " at least" };
        Err(self.tokens.expected(&match need {
            Class::Pred => "a predicate".to_owned(),
            need => format!("a register of{least} {} bits", bits(need)),
        }))
    }

    /// Reads a destination as wide as the type.
    pub fn dst(&mut self, ty: Ty) -> Result<Reg, PtxError> {
        self.reg(ty, Width::Same)
    }

    /// Reads a destination or the sink `_`.
    pub fn sink(&mut self, ty: Ty, width: Width) -> Result<Option<Reg>, PtxError> {
        if self.tokens.accept_word(b"_")? { Ok(None) } else { self.reg(ty, width).map(Some) }
    }

    /// Reads a comma and a source as wide as the type.
    pub fn src(&mut self, ty: Ty) -> Result<Operand, PtxError> {
        self.comma()?;
        self.operand(ty, Width::Same)
    }

    /// Reads sources of these types, with a comma before each.
    pub fn sources<const N: usize>(&mut self, types: [Ty; N]) -> Result<[Operand; N], PtxError> {
        let mut sources = [Operand::Imm(0); N];
        for (source, ty) in sources.iter_mut().zip(types) {
            *source = self.src(ty)?;
        }
        Ok(sources)
    }

    /// Reads a predicate register, which may be negated by `!`.
    pub fn guard(&mut self) -> Result<Guard, PtxError> {
        let negated = self.tokens.accept(b'!')?;
        Ok(Guard { reg: self.reg(Ty::Pred, Width::Same)?, negated })
    }

    /// Reads a source operand: a register, a constant, a special register or an address.
    pub fn operand(&mut self, ty: Ty, width: Width) -> Result<Operand, PtxError> {
        let negative = self.tokens.accept(b'-')?;
        let Token::Word(word) = self.tokens.peek() else {
            return Err(self.tokens.expected("an operand"));
        };
        if negative || word[0].is_ascii_digit() {
            let literal =
                Literal::parse(word).map(|literal| if negative { literal.negated() } else { literal });
            let Some(bits) = literal.and_then(|literal| literal.bits(ty)) else {
                return Err(self.tokens.expected(&format!("a constant of type {ty:?}")));
            };
            self.tokens.next()?;
            return Ok(Operand::Imm(bits));
        }
        let place = self.tokens.place();
        match self.symbol(word)? {
            Some(Symbol::Reg(reg)) => {
                self.fits(reg, ty, width)?;
                self.tokens.next()?;
                Ok(Operand::Reg(reg))
            }
            Some(Symbol::Variable { base, offset, element, .. }) => {
                self.address_sized(ty)?;
                self.tokens.next()?;
                let more = variable::index_after(&mut self.tokens, element)?;
                self.address_value(base, offset.wrapping_add(more), ty)
            }
            Some(Symbol::CallMemory { base, offset, .. }) => {
                self.address_sized(ty)?;
                self.tokens.next()?;
                let more = variable::offset_after(&mut self.tokens)?;
                self.address_value(base, offset.wrapping_add(more), ty)
            }
            Some(Symbol::Function(address)) => {
                if ty.bytes() != 8 || ty.float() {
                    return Err(self.tokens.expected(&format!("an operand of type {ty:?}")));
                }
                self.tokens.next()?;
                Ok(Operand::Imm(address))
            }
            Some(Symbol::CallParam(_) | Symbol::Prototype | Symbol::Targets(_) | Symbol::Branches(_)) => {
                Err(self.tokens.expected("no parameter or prototype of a call"))
            }
            None if word == b"WARP_SZ" && !ty.float() && ty != Ty::Pred => {
                self.tokens.next()?;
                Ok(Operand::Imm(32))
            }
            None if word == b"generic" => self.generic(ty),
            None if ty.bytes() == 4 && !ty.float() && in_cluster(word).is_some() => {
                self.tokens.next()?;
                Ok(Operand::Imm(in_cluster(word).unwrap_or_default()))
            }
            None => match special(word) {
                // `%gridid` had 32 bits in old PTX versions.
                Some((special, bits))
                    if bits == 8 * ty.bytes() || (special == Special::GridId && ty.bytes() == 4) =>
                {
                    self.tokens.next()?;
                    Ok(Operand::Special(special))
                }
                Some((_, bits)) => Err(self
                    .tokens
                    .error(format!("the special register has {bits} bits, not {}", 8 * ty.bytes()))),
                None => Err(self.tokens.undeclared(place, word)),
            },
        }
    }

    /// Reads `generic(variable)` with an optional offset.
    fn generic(&mut self, ty: Ty) -> Result<Operand, PtxError> {
        self.address_sized(ty)?;
        self.tokens.next()?;
        self.tokens.expect(b'(')?;
        let place = self.tokens.place();
        let name = variable::name(&mut self.tokens)?;
        self.tokens.expect(b')')?;
        let more = variable::offset_after(&mut self.tokens)?;
        let Some(Symbol::Variable { space, base, offset, .. }) = self.symbol(name)? else {
            return Err(self.tokens.undeclared(place, name));
        };
        let start = match space {
            Space::Generic | Space::Global => 0,
            Space::Shared => window::SHARED,
            Space::Local => window::LOCAL,
            Space::Param => window::PARAM,
        };
        self.address_value(base, offset.wrapping_add(more).wrapping_add_unsigned(start), ty)
    }

    fn address_sized(&self, ty: Ty) -> Result<(), PtxError> {
        if ty.bytes() >= 4 && !ty.float() {
            return Ok(());
        }
        Err(self.tokens.expected(&format!("an operand of type {ty:?}")))
    }

    /// Reads an address in brackets, or an element of a variable such as `a[3]`.
    pub fn address(&mut self) -> Result<ParsedAddress, PtxError> {
        if let Token::Word(word) = self.tokens.peek()
            && let Some(Symbol::Variable { space, base, offset, element }) = self.symbol(word)?
        {
            self.tokens.next()?;
            if self.tokens.peek() != Token::Mark(b'[') {
                return Err(self.tokens.expected("`[`"));
            }
            let more = variable::index_after(&mut self.tokens, element)?;
            return Ok(ParsedAddress::Memory { space: Some(space), base, offset: offset.wrapping_add(more) });
        }
        self.tokens.expect(b'[')?;
        let place = self.tokens.place();
        let Token::Word(word) = self.tokens.peek() else {
            return Err(self.tokens.expected("an address"));
        };
        let address = if word[0].is_ascii_digit() {
            let offset = variable::number(&mut self.tokens, "an address")? as i64;
            ParsedAddress::Memory { space: None, base: Base::Zero, offset }
        } else {
            match self.symbol(word)? {
                Some(Symbol::Reg(reg)) => {
                    if bits(self.scopes.class(reg)) < 32 {
                        return Err(self.tokens.expected("a register of at least 32 bits"));
                    }
                    ParsedAddress::Memory { space: None, base: Base::Reg(reg), offset: 0 }
                }
                Some(Symbol::Variable { space, base, offset, .. }) => {
                    ParsedAddress::Memory { space: Some(space), base, offset }
                }
                Some(Symbol::CallParam(reg)) => ParsedAddress::CallParam(reg),
                Some(Symbol::CallMemory { base, offset, .. }) => ParsedAddress::CallMemory { base, offset },
                Some(Symbol::Function(_) | Symbol::Prototype | Symbol::Targets(_) | Symbol::Branches(_)) => {
                    return Err(self.tokens.expected("a variable"));
                }
                None => return Err(self.tokens.undeclared(place, word)),
            }
            .after(self)?
        };
        let more = variable::offset_after(&mut self.tokens)?;
        self.tokens.expect(b']')?;
        match address {
            ParsedAddress::Memory { space, base, offset } => {
                Ok(ParsedAddress::Memory { space, base, offset: offset.wrapping_add(more) })
            }
            ParsedAddress::CallMemory { base, offset } => {
                Ok(ParsedAddress::CallMemory { base, offset: offset.wrapping_add(more) })
            }
            ParsedAddress::CallParam(_) if more != 0 => {
                Err(self.tokens.error_at(place, "a call's parameter can only be accessed as a whole"))
            }
            param @ ParsedAddress::CallParam(_) => Ok(param),
        }
    }

    /// Reads a vector such as `{a, b}`, or a single element. `element` reads each of them, at most 64.
    pub fn vector<T>(
        &mut self,
        mut element: impl FnMut(&mut Self) -> Result<T, PtxError>,
    ) -> Result<Vec<T>, PtxError> {
        if !self.tokens.accept(b'{')? {
            return Ok(vec![element(self)?]);
        }
        let mut elements = vec![element(self)?];
        while self.tokens.accept(b',')? {
            if elements.len() == 64 {
                return Err(self.tokens.limit("elements of a vector", 64));
            }
            elements.push(element(self)?);
        }
        self.tokens.expect(b'}')?;
        Ok(elements)
    }

    /// Reads a vector or a single element. Fails unless there are `count` elements.
    pub fn vector_of<T>(
        &mut self,
        count: usize,
        element: impl FnMut(&mut Self) -> Result<T, PtxError>,
    ) -> Result<Vec<T>, PtxError> {
        let place = self.tokens.place();
        let elements = self.vector(element)?;
        if elements.len() == count {
            return Ok(elements);
        }
        let message = format!("expected {count} elements, found {}", elements.len());
        Err(self.tokens.error_at(place, message))
    }
}

impl ParsedAddress {
    /// Takes the token of a name that has been looked up, and returns its meaning.
    fn after(self, parser: &mut Parser<'_>) -> Result<Self, PtxError> {
        parser.tokens.next()?;
        Ok(self)
    }
}
