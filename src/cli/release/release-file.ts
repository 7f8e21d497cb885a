import { FormatError } from '../../../attestation/errors.ts'
import { parseExactJson } from '../../../attestation/json/parse-strict.ts'
import { isJsonObject, type Json, memberOf } from '../../../attestation/json/value.ts'
import {
  parseRelease,
  parseSignedRelease,
  RELEASE_FILE_BYTES_MAX,
  RELEASE_FORMAT,
  type Release,
  type SignedRelease,
} from '../../../attestation/release/release.ts'
import {
  parseReleaseList,
  parseSignedReleaseList,
  RELEASES_FORMAT,
  type ReleaseList,
  type SignedReleaseList,
} from '../../../attestation/release/release-list.ts'
import { CliError, EXIT_CODES } from '../exit-codes.ts'
import { printable } from '../printable.ts'
import { readSource } from '../read-source.ts'
import { writeFileWhole } from '../write-output.ts'

/** A signed file about releases, its signatures not looked at. */
export type ReleaseFile =
  | { readonly kind: 'release'; readonly signed: SignedRelease }
  | { readonly kind: 'list'; readonly signed: SignedReleaseList }

/** A payload that may or may not be signed yet. */
export type UnsignedOr<Signed, Payload> = Signed | { readonly format: null; readonly payload: Payload }

/**
 * Gives what is in a file, URL or standard input (`-`): a signed release or a signed list. Throws CliError (exit code 2)
 * for anything else.
 */
export async function readReleaseFile(source: string): Promise<ReleaseFile> {
  return parseFile(source, await readJson(source), (json) => {
    const format = formatOf(json)
    if (format === RELEASES_FORMAT) return { kind: 'list', signed: parseSignedReleaseList(json) }
    return { kind: 'release', signed: parseSignedRelease(json) }
  })
}

/** Gives a release to be signed: the payload that the image builder writes, or a signed release. Throws CliError. */
export async function readUnsignedRelease(source: string): Promise<UnsignedOr<SignedRelease, Release>> {
  return parseFile(source, await readJson(source), (json) =>
    formatOf(json) === RELEASE_FORMAT
      ? parseSignedRelease(json)
      : { format: null, payload: parseRelease(json) },
  )
}

/** Gives a list to be signed: a payload somebody wrote, or a signed list. Throws CliError. */
export async function readUnsignedList(source: string): Promise<UnsignedOr<SignedReleaseList, ReleaseList>> {
  return parseFile(source, await readJson(source), (json) =>
    formatOf(json) === RELEASES_FORMAT
      ? parseSignedReleaseList(json)
      : { format: null, payload: parseReleaseList(json) },
  )
}

/**
 * Writes a signed file whole or not at all, or to standard output (`-`); everybody may read it, for it is to be published.
 * Throws CliError.
 */
export async function writeReleaseFile(
  path: string,
  signed: SignedRelease | SignedReleaseList,
): Promise<void> {
  const text = `${JSON.stringify(signed, null, 2)}\n`
  if (path === '-') process.stdout.write(text)
  else await writeFileWhole(path, text, PUBLIC_FILE_MODE)
}

const PUBLIC_FILE_MODE = 0o644

function formatOf(json: Json): Json | undefined {
  return isJsonObject(json) ? memberOf(json, 'format') : undefined
}

async function readJson(source: string): Promise<Json> {
  const bytes = await readSource(source, {
    apiKey: null,
    stdin: process.stdin,
    bytesMax: RELEASE_FILE_BYTES_MAX,
  })
  return parseFile(source, bytes, parseExactJson)
}

function parseFile<Raw, Value>(source: string, raw: Raw, parse: (raw: Raw) => Value): Value {
  try {
    return parse(raw)
  } catch (fault) {
    // JsonError is one, too.
    if (!(fault instanceof FormatError)) throw fault
    throw new CliError(`${printable(source)}: ${printable(fault.message)}`, EXIT_CODES.usage)
  }
}
