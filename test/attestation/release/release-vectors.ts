import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { decodeHex } from '#attestation/bytes.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import type { Json, JsonObject } from '#attestation/json/value.ts'
import { parseSignedRelease } from '#attestation/release/release.ts'
import { parseSignedReleaseList } from '#attestation/release/release-list.ts'

const folder = join(import.meta.dirname, '../../vectors/releases')

const readVector = (name: string): Json => parseExactJson(readFileSync(join(folder, name)))

const values = readVector('values.json') as {
  readonly secret_keys: readonly string[]
  readonly public_keys: readonly string[]
  readonly release_message: string
  readonly list_message: string
}

/** A signed release, as it is published: by both keys. */
export const RELEASE_JSON = readVector('measurements.json') as JsonObject
/** A signed list of three releases: accepted, ending, revoked; by the first key. */
export const LIST_JSON = readVector('releases.json') as JsonObject

export const SIGNED_RELEASE = parseSignedRelease(RELEASE_JSON)
export const SIGNED_LIST = parseSignedReleaseList(LIST_JSON)

/** The published keys of RFC 8032 section 7.1: TEST 1 and TEST 2. */
export const SECRET_KEYS = values.secret_keys.map(decodeHex)
export const PUBLIC_KEYS = values.public_keys.map(decodeHex)

/** What is signed, hex. */
export const RELEASE_MESSAGE = values.release_message
export const LIST_MESSAGE = values.list_message

/** The code of what `run` throws, and its message; null when it throws nothing. */
export function faultOf(
  run: () => unknown,
): { readonly code: unknown; readonly message: string } | null {
  try {
    run()
    return null
  } catch (fault) {
    if (!(fault instanceof Error) || !('code' in fault)) throw fault
    return { code: fault.code, message: fault.message }
  }
}
