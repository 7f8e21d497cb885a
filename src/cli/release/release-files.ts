import { createPrivateKey, generateKeyPairSync, type KeyObject } from 'node:crypto'
import { stat } from 'node:fs/promises'
import { encodeHex } from '#attestation/bytes.ts'
import { FormatError } from '#attestation/errors.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import { isJsonObject, type Json, memberOf } from '#attestation/json/value.ts'
import { orNull } from '#attestation/or-null.ts'
import {
  parseRelease,
  parseSignedRelease,
  RELEASE_FILE_BYTES_MAX,
  RELEASE_FORMAT,
  type Release,
  type SignedRelease,
} from '#attestation/release/release.ts'
import {
  parseReleaseList,
  parseSignedReleaseList,
  RELEASES_FORMAT,
  type ReleaseList,
  type SignedReleaseList,
} from '#attestation/release/release-list.ts'
import { nameRelease } from '#attestation/release/release-name.ts'
import {
  parseReleaseKey,
  RELEASE_KEY_BYTES,
  releaseKeyOf,
} from '#attestation/release/release-signatures.ts'
import { signRelease } from '#attestation/release/verify-release.ts'
import { holds } from '#attestation/report/judge-releases.ts'
import { printable } from '#attestation/report/printable.ts'
import { parseReleaseFile, type ReleaseFile } from '#attestation/report/release-file.ts'
import { CliError, convertFault, EXIT_CODES } from '../faults.ts'
import { createFile, readSource, refuseUrl, writeFileWhole } from '../files.ts'
import { jsonText } from '../printable.ts'

export type SignOptions = {
  readonly key: string
  readonly output?: string
  readonly uncommitted?: boolean
}

/** Prints the public key. Throws CliError. */
export async function createReleaseKey(file: string): Promise<void> {
  const publicKey = await createKeyFiles(file)
  process.stderr.write(
    `The private key is in ${printable(file)}: do not keep it on any machine that serves. ` +
      'Publish this key:\n',
  )
  process.stdout.write(`${publicKey}\n`)
}

/** Throws CliError. */
export async function signFile(
  file: string,
  { key, output, uncommitted = false }: SignOptions,
): Promise<void> {
  const given = await readUnsignedRelease(file)
  const [release, others] =
    given.format === null ? [given.payload, []] : [given.release, given.signatures]
  if (given.format !== null) checkSignaturesHold({ kind: 'release', signed: given }, file)
  checkCommitted(release, uncommitted)
  const signed = signRelease(release, await readSecretKey(key), others)
  const place = output ?? file
  await writeReleaseFile(place, signed)
  process.stderr.write(
    `${printable(nameRelease(release))} has ${signed.signatures.length} signature(s) in ` +
      `${printable(place)}.\n`,
  )
}

/** The image builder adds this mark to a version if the commit alone cannot reproduce the image. */
const UNCOMMITTED = /\+uncommitted$/

function checkCommitted({ version }: Release, isAllowed: boolean): void {
  if (isAllowed || !UNCOMMITTED.test(version)) return
  throw new CliError(
    `release ${version} was built from uncommitted sources, so others cannot rebuild it: ` +
      'commit and build, or give --uncommitted',
  )
}

type UnsignedOr<Signed, Payload> = Signed | { readonly format: null; readonly payload: Payload }

/**
 * `source`: a file, a URL or standard input (`-`). Throws CliError (exit code 2) if the content is
 * not a signed release or list.
 */
export async function readReleaseFile(source: string): Promise<ReleaseFile> {
  return parseFile(source, await readJson(source), parseReleaseFile)
}

/** Accepts the image builder's payload, or a signed release. Throws CliError. */
async function readUnsignedRelease(source: string): Promise<UnsignedOr<SignedRelease, Release>> {
  return parseFile(source, await readJson(source), (json) =>
    formatOf(json) === RELEASE_FORMAT
      ? parseSignedRelease(json)
      : { format: null, payload: parseRelease(json) },
  )
}

/** Accepts a handwritten payload, or a signed list. Throws CliError. */
export async function readUnsignedList(
  source: string,
): Promise<UnsignedOr<SignedReleaseList, ReleaseList>> {
  return parseFile(source, await readJson(source), (json) =>
    formatOf(json) === RELEASES_FORMAT
      ? parseSignedReleaseList(json)
      : { format: null, payload: parseReleaseList(json) },
  )
}

/**
 * Writes the whole file or nothing. For `-`, writes to standard output. All users may read the
 * file, because it will be published. Throws CliError.
 */
export async function writeReleaseFile(
  path: string,
  signed: SignedRelease | SignedReleaseList,
): Promise<void> {
  const text = jsonText(signed)
  if (path === '-') process.stdout.write(text)
  else await writeFileWhole(path, text, PUBLIC_FILE_MODE)
}

const PUBLIC_FILE_MODE = 0o644

function formatOf(json: Json): Json | undefined {
  return isJsonObject(json) ? memberOf(json, 'format') : undefined
}

async function readJson(source: string): Promise<Json> {
  const bytes = await readSource(source, { bytesMax: RELEASE_FILE_BYTES_MAX })
  return parseFile(source, bytes, parseExactJson)
}

function parseFile<Raw, Value>(source: string, raw: Raw, parse: (raw: Raw) => Value): Value {
  // A JsonError is also a FormatError, so it is converted too.
  const toError = ({ message }: FormatError) =>
    new CliError(`${printable(source)}: ${printable(message)}`, EXIT_CODES.usage)
  return convertFault(() => parse(raw), FormatError, toError)
}

/** Bytes. A key in PEM has 119 bytes. */
const KEY_FILE_BYTES_MAX = 16 * 1024

/**
 * Creates the file `path`, which only the owner can read, with the private key (PEM, PKCS #8, as
 * OpenSSL writes it). `path`.pub contains the public key. Returns the public key, 64 hex digits.
 * Throws CliError, also if one of the files exists.
 */
async function createKeyFiles(path: string): Promise<string> {
  const { privateKey } = generateKeyPairSync('ed25519')
  const publicKey = encodeHex(releaseKeyOf(secretOf(privateKey)))
  await createFile(path, String(privateKey.export({ format: 'pem', type: 'pkcs8' })), 0o600)
  await createFile(`${path}.pub`, `${publicKey}\n`, PUBLIC_FILE_MODE)
  return publicKey
}

/**
 * Returns the secret, 32 bytes, of a private key in PEM (PKCS #8, Ed25519). Reads a file that no
 * other user can read, or standard input (`-`). Throws CliError, whose message contains no part of
 * the file.
 */
export async function readSecretKey(source: string): Promise<Uint8Array> {
  if (source !== '-') await checkPrivacy(source)
  const bytes = await readSource(source, { bytesMax: KEY_FILE_BYTES_MAX })
  return secretOf(parsePrivateKey(bytes, source))
}

/**
 * Returns the public release key, 32 bytes. The text is 64 hex digits, or the name of a file with
 * these digits. A file name of 64 hex digits needs `./` before it. Throws CliError, also for a URL.
 */
export async function readReleaseKey(text: string): Promise<Uint8Array> {
  const digits = HEX_KEY.test(text) ? text : await readKeyFile(text)
  const toError = ({ message }: FormatError) =>
    new CliError(`--release-key ${printable(text)}: ${message}`, EXIT_CODES.usage)
  return convertFault(() => parseReleaseKey(digits.toLowerCase()), FormatError, toError)
}

const HEX_KEY = new RegExp(`^[0-9a-fA-F]{${2 * RELEASE_KEY_BYTES}}$`)

async function readKeyFile(path: string): Promise<string> {
  refuseUrl(path, '--release-key: expected 64 hex digits or a file')
  const bytes = await readSource(path, { bytesMax: KEY_FILE_BYTES_MAX })
  return new TextDecoder().decode(bytes).trim()
}

function parsePrivateKey(bytes: Uint8Array, source: string): KeyObject {
  const key = orNull(() => createPrivateKey({ key: Buffer.from(bytes), format: 'pem' }), Error)
  if (key?.asymmetricKeyType === 'ed25519') return key
  throw new CliError(
    `${printable(source)}: expected an Ed25519 private key in PEM (PKCS #8), not encrypted`,
    EXIT_CODES.usage,
  )
}

function secretOf(key: KeyObject): Uint8Array {
  return new Uint8Array(Buffer.from(key.export({ format: 'jwk' }).d ?? '', 'base64url'))
}

async function checkPrivacy(path: string): Promise<void> {
  const { mode } = await stat(path).catch((fault: unknown) => {
    throw new CliError(`cannot read ${printable(path)}: ${reasonOf(fault)}`, EXIT_CODES.unavailable)
  })
  if ((mode & 0o077) === 0) return
  throw new CliError(
    `${printable(path)}: expected a private key file that only its owner can read: run chmod 600 on it`,
    EXIT_CODES.usage,
  )
}

function reasonOf(fault: unknown): string {
  return fault instanceof Error && 'code' in fault ? String(fault.code) : 'unknown fault'
}

/**
 * Checks the file's signatures before a signer adds a signature. Otherwise a signer who did not
 * read the file could sign changed content. Throws CliError.
 */
export function checkSignaturesHold(file: ReleaseFile, path: string): void {
  if (file.signed.signatures.every((signature) => holds(file, signature))) return
  throw new CliError(
    `${printable(path)}: the file was changed after it was signed: a signature is wrong`,
  )
}
