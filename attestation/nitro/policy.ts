import { decodeBase64, decodeHex, HASH_BYTES, sha256 } from '../bytes.ts'
import { FormatError } from '../errors.ts'
import { hasOwnMembersAlone, ownMembers } from '../own-members.ts'
import { checkReleaseEntry, type ReleaseEntry } from '../release/release-list.ts'
import { isRevocationList, type RevocationList } from './check-revocation.ts'
import { FIELD_BYTES_MAX, isBytes, PCR_BYTES, PCRS_MAX } from './document.ts'

/** The longest validity of a leaf. AWS's leaves are valid for three hours and some seconds. */
const AGE_MS_MAX_DEFAULT = 3 * 60 * 60 * 1000 + 60_000
/**
 * Clocks of well-run hosts differ by less than this. `at` can lack milliseconds, but a document's
 * time has them.
 */
export const FUTURE_SKEW_MS_DEFAULT = 60_000

/** Measurements that must all match: 48 bytes each, by PCR index 0 to 31. */
export type MeasurementSet = ReadonlyMap<number, Uint8Array>

export type RevokedCertificate = {
  /** DER of the issuer's name. */
  readonly issuer: Uint8Array
  /** Big-endian. Leading zeros are ignored. */
  readonly serial: Uint8Array
}

/**
 * What the caller demands from a document. A member may be left out, but not be undefined or null.
 */
export type AttestationPolicy = {
  /**
   * The accepted code. The document must have all values of one set. `'any'` accepts any code in
   * the enclave. Without sets and releases, every document is refused. An empty set is not valid.
   */
  readonly measurements: 'any' | readonly MeasurementSet[]
  /**
   * Releases from verifyRelease or verifyReleaseList. They are accepted in addition to the sets, if
   * valid at the document's own timestamp. Default: []. Not allowed with `'any'`, which would also
   * accept refused releases.
   */
  readonly releases?: readonly ReleaseEntry[]
  /**
   * `current` (default): everything must be valid at the caller's time. `historical`: certificates
   * must be valid at the document's own timestamp, even if it is old. Use it only for records whose
   * time has another proof: with a stolen enclave key, an attacker could backdate a document.
   */
  readonly mode?: 'current' | 'historical'
  /** The nonce (0 to 1024 bytes) that the document must have. Default: not checked. */
  readonly nonce?: Uint8Array
  /**
   * The greatest age of the document at the caller's time, milliseconds. Default
   * AGE_MS_MAX_DEFAULT.
   */
  readonly maxAgeMs?: number
  /**
   * How far the document's time may be after the caller's time, ms. Default FUTURE_SKEW_MS_DEFAULT.
   */
  readonly futureSkewMs?: number
  /** True accepts debug mode, in which the host can read the enclave's memory. Default false. */
  readonly allowDebug?: boolean
  /**
   * The roots that are trusted, by SHA-256 of their DER. See parseRoots. Default [AWS_ROOT_SHA256].
   */
  readonly roots?: readonly Uint8Array[]
  /** Certificates to refuse. Default: [], so revocation is not checked. */
  readonly revoked?: readonly RevokedCertificate[]
  /**
   * Verified revocation lists. Each list must be valid, with its issuer in the document's chain.
   * Otherwise the document is refused. Default: [].
   */
  readonly revocationLists?: readonly RevocationList[]
}

/** The caller's policy or time is invalid. No document was checked. */
export class PolicyError extends Error {
  override readonly name = 'PolicyError'
  readonly code = 'policy_invalid'
}

/** A policy with all defaults set. A nonce of null is not checked. */
export type ResolvedPolicy = Required<Omit<AttestationPolicy, 'nonce'>> & {
  readonly nonce: Uint8Array | null
}

/**
 * Returns the policy with defaults. Checks every member: a wrong value from JavaScript (a nonce of
 * null, 'false', a misspelt name) would demand nothing. Reads only own members. Throws PolicyError.
 */
export function resolvePolicy(given: AttestationPolicy): ResolvedPolicy {
  checkMembers(given)
  const policy = ownMembers(given)
  const { measurements, releases = [], mode = 'current', nonce, maxAgeMs, futureSkewMs } = policy
  const {
    allowDebug = false,
    roots = [AWS_ROOT_SHA256],
    revoked = [],
    revocationLists = [],
  } = policy
  checkMode({ mode, maxAgeMs, futureSkewMs })
  checkMeasurementForm(measurements)
  checkReleases(releases, measurements)
  if (nonce !== undefined && !isBytes(nonce, { bytesMin: 0, bytesMax: FIELD_BYTES_MAX }))
    throw new PolicyError(`expected the nonce as Uint8Array of at most ${FIELD_BYTES_MAX} bytes`)
  if (typeof allowDebug !== 'boolean')
    throw new PolicyError('expected allowDebug to be true or false')
  checkRoots(roots)
  checkRevoked(revoked)
  if (!listOf('revocationLists', revocationLists).every(isRevocationList))
    throw new PolicyError('expected revocationLists of issuer, issuerKey, serials and times')
  return {
    measurements,
    releases,
    mode,
    nonce: nonce ?? null,
    maxAgeMs: durationOf('maxAgeMs', maxAgeMs ?? AGE_MS_MAX_DEFAULT),
    futureSkewMs: durationOf('futureSkewMs', futureSkewMs ?? FUTURE_SKEW_MS_DEFAULT),
    allowDebug,
    roots,
    revoked,
    revocationLists,
  }
}

/** All options. Other names are refused: a misspelt demand would not be checked. */
const OPTIONS: Readonly<Record<keyof AttestationPolicy, true>> = {
  measurements: true,
  releases: true,
  mode: true,
  nonce: true,
  maxAgeMs: true,
  futureSkewMs: true,
  allowDebug: true,
  roots: true,
  revoked: true,
  revocationLists: true,
}

/**
 * An option that is present must have a value: a nonce that the caller looked up and did not find
 * must not count as left out.
 */
function checkMembers(policy: AttestationPolicy): void {
  if (!hasOwnMembersAlone(policy))
    throw new PolicyError(
      'expected a policy: an object with its own members, and the usual prototype',
    )
  for (const [name, value] of Object.entries(policy)) {
    if (!Object.hasOwn(OPTIONS, name)) throw new PolicyError(`expected no option ${name}`)
    if (value === undefined || value === null)
      throw new PolicyError(`expected ${name} to have a value, or to be left out`)
  }
}

function checkMode({ mode, maxAgeMs, futureSkewMs }: Partial<AttestationPolicy>): void {
  if (mode !== 'current' && mode !== 'historical')
    throw new PolicyError("expected mode to be 'current' or 'historical'")
  if (mode === 'historical' && (maxAgeMs !== undefined || futureSkewMs !== undefined)) {
    throw new PolicyError(
      'expected no maxAgeMs or futureSkewMs in historical mode, which does not look at age',
    )
  }
}

/** Allows an empty list, which refuses every document unless there are releases. */
function checkMeasurementForm(measurements: AttestationPolicy['measurements']): void {
  if (measurements === 'any') return
  for (const [at, set] of listOf('measurements', measurements).entries())
    checkMeasurementSet(set, `measurements.${at}`)
}

/**
 * Checks one set, called `name` in messages. Refuses an empty set: it would match every document.
 * Throws PolicyError.
 */
export function checkMeasurementSet(set: unknown, name: string): void {
  if (!(set instanceof Map) || set.size === 0)
    throw new PolicyError(
      `expected ${name} to be a Map, not empty, of measurements by register index`,
    )
  for (const [index, value] of set) {
    if (!Number.isInteger(index) || index < 0 || index >= PCRS_MAX)
      throw new PolicyError(`expected ${name} to be by register index 0 to ${PCRS_MAX - 1}`)
    if (!isBytesOf(value, PCR_BYTES))
      throw new PolicyError(
        `expected ${name}, PCR${index}, to be a Uint8Array of ${PCR_BYTES} bytes; ` +
          'of hex, decodeHex makes one',
      )
  }
}

function checkReleases(
  releases: readonly ReleaseEntry[],
  measurements: AttestationPolicy['measurements'],
): void {
  for (const [at, entry] of listOf('releases', releases).entries())
    checkRelease(entry, `releases.${at}`)
  if (measurements === 'any' && releases.length > 0)
    throw new PolicyError("expected no releases beside measurements of 'any'")
}

/** Checks one entry, called `name` in messages. Throws PolicyError. */
export function checkRelease(entry: unknown, name: string): void {
  try {
    checkReleaseEntry(entry)
  } catch (fault) {
    const reason = fault instanceof Error ? fault.message : 'unknown fault'
    throw new PolicyError(
      `expected ${name} to be an entry, from verifyRelease or verifyReleaseList (${reason})`,
    )
  }
}

function checkRoots(roots: readonly Uint8Array[]): void {
  const list = listOf('roots', roots)
  if (list.length === 0 || list.some((root) => !isBytesOf(root, HASH_BYTES))) {
    throw new PolicyError(
      `expected one or more roots as SHA-256 fingerprints of ${HASH_BYTES} bytes`,
    )
  }
}

function checkRevoked(revoked: readonly RevokedCertificate[]): void {
  for (const entry of listOf('revoked', revoked)) {
    const { issuer, serial } = hasOwnMembersAlone(entry) ? ownMembers(entry) : NO_CERTIFICATE
    if (!(issuer instanceof Uint8Array) || !(serial instanceof Uint8Array))
      throw new PolicyError(
        'expected revoked certificates by issuer and serial, each as Uint8Array',
      )
  }
}

const NO_CERTIFICATE = { issuer: null, serial: null }

function durationOf(name: string, valueMs: number): number {
  if (typeof valueMs === 'number' && valueMs >= 0) return valueMs
  throw new PolicyError(`expected ${name} to be 0 or more milliseconds`)
}

/** A hole in a sparse array becomes an undefined item. */
function listOf<Item>(name: string, list: readonly Item[]): readonly Item[] {
  if (Array.isArray(list)) return Array.from(list)
  throw new PolicyError(`expected ${name} to be a list`)
}

function isBytesOf(value: unknown, length: number): boolean {
  return isBytes(value, { bytesMin: length, bytesMax: length })
}

/**
 * SHA-256 of the DER of the AWS Nitro Enclaves root certificate (aws partition), the cabundle[0] of
 * every document from that partition. Source: AWS, "Verifying the root of trust". To check it:
 * unpack AWS_NitroEnclaves_Root-G1.zip (the SHA-256 of the zip file is 8cf60e2b..., which is not
 * this value), convert root.pem to DER and hash the DER.
 */
export const AWS_ROOT_SHA256: Uint8Array = decodeHex(
  '641a0321a3e244efe456463195d606317ed7cdcc3c1756e09893f3c68f79bb5b',
)

/**
 * Returns the SHA-256 fingerprints of the certificates in a file: one DER certificate, or PEM with
 * one or more blocks (RFC 7468). Does not check the certificates. Throws FormatError `invalid_root`
 * or `invalid_base64`.
 */
export function parseRoots(file: Uint8Array): readonly Uint8Array[] {
  if (file[0] === DER_SEQUENCE && (file[1] ?? 0) > ASCII_MAX) return [sha256(file)]
  const text = new TextDecoder().decode(file)
  const blocks = [...text.matchAll(/-----BEGIN CERTIFICATE-----([^-]*)-----END CERTIFICATE-----/g)]
  if (blocks.length === 0)
    throw new FormatError('invalid_root', 'expected a certificate in DER or PEM')
  return blocks.map(([, base64 = '']) => sha256(decodeBase64(base64.replaceAll(/\s/g, ''))))
}

/** The first byte of DER, and the digit 0 in a text. Only in DER, a byte above 127 follows. */
const DER_SEQUENCE = 0x30
const ASCII_MAX = 0x7f
