import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Ajv2020 } from 'ajv/dist/2020.js'

/** Where the manifest is, and what the paths in it are relative to. */
export const VECTORS = join(import.meta.dirname, '../vectors')

/** What `format` is in every manifest of this form. */
export const MANIFEST_FORMAT = 'affidavit-conformance/v1'

/** What one case demands of its source: each member becomes an option of the command line. */
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
  readonly chain?: ChainAnswers
  readonly confirmations?: number
  readonly nonce?: string
  readonly at?: number
  readonly historical?: true
  readonly max_age?: number
}

/** What the driver's JSON-RPC endpoint answers. */
export type ChainAnswers = {
  readonly chain_id: number
  readonly newest_block: number
  /** Hashes by number. */
  readonly blocks: Readonly<Record<string, string>>
}

export type Verdict = 'verified' | 'consistent' | 'invalid'

/** What a verifier must find. */
export type Expectation = {
  readonly verdict: Verdict
  /**
   * Names of the checks that fail; of a document, its code. Null: the source cannot be read, and no
   * report is compared.
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

/** The manifest of the published vectors. Throws when it is not of its schema. */
export function readManifest(folder: string = VECTORS): Manifest {
  const manifest: unknown = JSON.parse(readFileSync(join(folder, 'manifest.json'), 'utf8'))
  const faults = faultsOf(manifest)
  if (faults !== null) throw new Error(`manifest.json: ${faults}`)
  return manifest as Manifest
}

/** What is wrong with a manifest by `manifest.schema.json`; null when nothing is. */
export function faultsOf(manifest: unknown): string | null {
  const schema: object = JSON.parse(readFileSync(join(VECTORS, 'manifest.schema.json'), 'utf8'))
  const ajv = new Ajv2020({ allErrors: false })
  return ajv.validate(schema, manifest) ? null : ajv.errorsText()
}
