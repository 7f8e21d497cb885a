import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import solc from 'solc'
import { z } from 'zod'

/** `node contracts/compile.ts` writes this file, and artifact.ts reads it. */
export const ARTIFACT_FILE = join(import.meta.dirname, '../attestation/contract/artifact.json')

/** A part of the compiler's input. It must not change, because its hash is in the bytecode. */
const SOURCE_UNIT = 'contracts/Affidavit.sol'

/**
 * These settings and the compiler's version (package-lock.json, pragma) decide the bytecode.
 * `paris` is the oldest EVM without proof of work, so the bytecode runs on every later chain.
 * `runs` is high because the contract is called very often.
 */
const SETTINGS = {
  evmVersion: 'paris',
  optimizer: { enabled: true, runs: 1_000_000 },
  viaIR: false,
  metadata: { bytecodeHash: 'ipfs' },
} as const

const Output = z.object({
  errors: z.array(z.object({ severity: z.string(), formattedMessage: z.string() })).default([]),
  contracts: z
    .record(
      z.string(),
      z.record(
        z.string(),
        z.object({
          abi: z.array(z.unknown()),
          evm: z.object({
            bytecode: z.object({ object: z.string() }),
            deployedBytecode: z.object({ object: z.string() }),
          }),
          storageLayout: z.unknown(),
        }),
      ),
    )
    .default({}),
})

/**
 * Returns the content of the artifact file. Deterministic. Throws the compiler's own report on an
 * error or a warning.
 */
export function compileArtifact(): string {
  const source = readFileSync(join(import.meta.dirname, 'Affidavit.sol'), 'utf8')
  const input = {
    language: 'Solidity',
    sources: { [SOURCE_UNIT]: { content: source } },
    settings: {
      ...SETTINGS,
      outputSelection: {
        '*': {
          '*': ['abi', 'evm.bytecode.object', 'evm.deployedBytecode.object', 'storageLayout'],
        },
      },
    },
  }
  const output = Output.parse(JSON.parse(solc.compile(JSON.stringify(input))))
  if (output.errors.length > 0) {
    throw new Error(output.errors.map((error) => error.formattedMessage).join('\n'))
  }
  const compiled = output.contracts[SOURCE_UNIT]?.Affidavit
  if (compiled === undefined)
    throw new Error(`the compiler's output has no contract Affidavit in ${SOURCE_UNIT}`)
  const artifact = {
    contractName: 'Affidavit',
    sourceName: SOURCE_UNIT,
    compiler: `solc ${solc.version()}`,
    settings: SETTINGS,
    abi: compiled.abi,
    bytecode: `0x${compiled.evm.bytecode.object}`,
    deployedBytecode: `0x${compiled.evm.deployedBytecode.object}`,
    storageLayout: compiled.storageLayout,
  }
  return `${JSON.stringify(artifact, null, 2)}\n`
}

if (process.argv[1] !== undefined && import.meta.url === pathToFileURL(process.argv[1]).href) {
  writeFileSync(ARTIFACT_FILE, compileArtifact())
}
