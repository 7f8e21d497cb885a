import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Ajv2020 } from 'ajv/dist/2020.js'

/** The folder of the manifest; its paths are relative to this folder. */
export const VECTORS = join(import.meta.dirname, '../vectors')

/** The value of `format` in every manifest of this form. */
export const MANIFEST_FORMAT = 'affidavit-conformance/v1'

/** The demands of one case on its source: each member becomes an option of the command line. */
export type Demands = {
  readonly roots?: readonly string[]
  readonly pcrs?: Readonly<Record<string, string>>
  readonly any_measurement?: true
  readonly allow_debug?: true
  readonly configurations?: readonly string[]
  readonly releases?: readonly string[]
  readonly release_keys?: readonly string[]
  readonly release_signers?: number
  readonly allow_outcomes?: readonly string[]
  readonly request?: string
  readonly answer?: string
  readonly idempotent?: true
  readonly crls?: readonly string[]
  readonly policy?: string
  readonly chain?: ChainAnswers
  readonly confirmations?: number
  readonly nonce?: string
  readonly at?: number
  readonly historical?: true
  readonly max_age?: number
}

/** The answers of the driver's JSON-RPC endpoint. */
export type ChainAnswers = {
  readonly chain_id: number
  readonly newest_block: number
  /** Hashes by number. */
  readonly blocks: Readonly<Record<string, string>>
  /** Unix seconds by number. A block without a time is read for its hash alone. */
  readonly times?: Readonly<Record<string, number>>
}

export type Verdict = 'verified' | 'incomplete' | 'not_accepted' | 'invalid'

/** The result that a verifier must find. */
export type Expectation = {
  readonly verdict: Verdict
  /**
   * Names of the checks that fail; for a document, its code. Null: the source cannot be read, and
   * there is no report to compare.
   */
  readonly failed: readonly string[] | null
  /** Names of the checks that are not made. */
  readonly not_checked: readonly string[] | null
}

export type ConformanceCase = {
  readonly name: string
  readonly about: string
  readonly kind: 'bundle' | 'record' | 'answer' | 'stream' | 'document'
  readonly source: string
  readonly demands: Demands
  readonly expect: Expectation
}

export type Manifest = {
  readonly format: typeof MANIFEST_FORMAT
  readonly source: string
  readonly cases: readonly ConformanceCase[]
}

/** The manifest of the published vectors. Throws when it does not match its schema. */
export function readManifest(folder: string = VECTORS): Manifest {
  const manifest: unknown = JSON.parse(readFileSync(join(folder, 'manifest.json'), 'utf8'))
  const faults = faultsOf(manifest)
  if (faults !== null) throw new Error(`manifest.json: ${faults}`)
  return manifest as Manifest
}

/** The faults of a manifest by `manifest.schema.json`; null without faults. */
export function faultsOf(manifest: unknown): string | null {
  const schema: object = JSON.parse(readFileSync(join(VECTORS, 'manifest.schema.json'), 'utf8'))
  const ajv = new Ajv2020({ allErrors: false })
  return ajv.validate(schema, manifest) ? null : ajv.errorsText()
}
