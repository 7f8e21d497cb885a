/** The chain's endpoint cannot be asked, or makes no sense: what was to be read from it is not audited. */
export class ChainFault extends Error {
  override readonly name = 'ChainFault'
}
