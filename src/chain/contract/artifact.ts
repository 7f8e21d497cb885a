import artifact from './artifact.json' with { type: 'json' }

/**
 * The compiled contract (src/chain/contract/Affidavit.sol). `bytecode` creates it (no constructor arguments, no value);
 * `deployedBytecode` is what then stands at its address, the same on every chain since it has no immutables. Both 0x
 * hex. A test recompiles the source and compares every byte of the file.
 */
export const AFFIDAVIT: {
  readonly compiler: string
  readonly abi: readonly object[]
  readonly bytecode: string
  readonly deployedBytecode: string
} = artifact
