import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { needShared } from './needs.ts'

/** One document of the shared fixtures, as their manifest describes it. */
export type NitroFixture = {
  readonly file: string
  readonly kind: 'aws' | 'negative'
  readonly sha256: string
  /** Unix seconds. */
  readonly valid_at: number
  readonly timestamp_ms: number
  readonly leaf_not_before: string
  readonly leaf_not_after: string
  readonly module_id: string
  readonly debug_mode_zero_pcrs: boolean
  readonly pcr_indexes: readonly number[]
  readonly pcrs_nonzero_decoded: Readonly<Record<string, string>>
  /** `null` or `bytes[<length>]`. */
  readonly public_key: string
  readonly user_data: string
  readonly nonce: string
}

const folder = join(import.meta.dirname, '../../../shared/fixtures/nitro')

/** Whether the fixtures, which are not part of this repository, are there. */
export const NITRO_FIXTURES = needShared(existsSync(join(folder, 'manifest.json')))

/** Real documents that AWS signed, and negatives. Empty where the fixtures are missing. */
export const nitroFixtures: readonly NitroFixture[] = NITRO_FIXTURES.isMet
  ? JSON.parse(readFileSync(join(folder, 'manifest.json'), 'utf8')).documents
  : []

/** Bytes of one fixture. */
export function readFixture({ file }: NitroFixture): Uint8Array {
  return readFileSync(join(folder, file))
}
