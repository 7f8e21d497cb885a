import { concatBytes, equalBytes, sha256 } from '../../bytes.ts'
import { type CertificateFields, pointOf } from '../../nitro/certificate.ts'
import { DER_TAGS, type DerNode, decodeDer, decodeObjectIdentifier } from '../../nitro/der.ts'
import { importPoint, P256 } from '../../nitro/ecdsa.ts'
import { tryDecodeDer } from '../try-decode-der.ts'
import { isSignedWith } from './der-signature.ts'
import { refuseBundle } from './sigstore-codes.ts'
import type { SigstoreTrust } from './sigstore-trust.ts'

/** The extension with signed certificate timestamps (RFC 6962 section 3.3). */
const TIMESTAMPS = '1.3.6.1.4.1.11129.2.4.2'

type Timestamp = {
  /** SHA-256 of the log's key. */
  readonly logId: Uint8Array
  /** Eight bytes: Unix milliseconds. */
  readonly time: Uint8Array
  /** With the length in two bytes. */
  readonly extensions: Uint8Array
  /** Hash, signature algorithm, and DER of ECDSA-Sig-Value. */
  readonly algorithm: Uint8Array
  readonly signature: Uint8Array<ArrayBuffer>
}

/**
 * Verifies that a trusted log of certificates promised to include the precertificate of this
 * certificate (RFC 6962 section 3.2). `issuerKey` is the SubjectPublicKeyInfo of the issuer.
 * Returns the time of the promise, Unix milliseconds. Throws ProviderEvidenceError.
 *
 * It shows that the log's owner signed the promise. It does NOT show that the log kept it.
 */
export async function verifyTimestamp(
  { opaque, signed }: Pick<CertificateFields, 'opaque' | 'signed'>,
  issuerKey: Uint8Array,
  { certificateLogs }: Pick<SigstoreTrust, 'certificateLogs'>,
): Promise<number> {
  const stated = opaque.get(TIMESTAMPS)
  if (stated === undefined)
    throw refuseBundle('timestamp_missing', 'expected a certificate with a timestamp of a log')
  const timestamps = readTimestamps(stated)
  for (const timestamp of timestamps) {
    const log = certificateLogs.find((one) => equalBytes(sha256(one), timestamp.logId))
    if (log === undefined) continue
    const key = await importPoint(pointOf(decodeDer(log), 'log', P256), P256)
    const isEcdsa = equalBytes(timestamp.algorithm, ECDSA_SHA256)
    const promised = promiseOf(timestamp, { issuerKey, certificate: withoutTimestamps(signed) })
    if (!key || !isEcdsa || !(await isSignedWith(key, timestamp.signature, promised)))
      throw refuseBundle('timestamp_signature', 'expected a timestamp that the log signed')
    return Number(new DataView(timestamp.time.slice().buffer).getBigUint64(0))
  }
  throw refuseBundle('timestamp_log_unknown', 'expected a timestamp of a trusted log')
}

/** Numbers of RFC 5246 section 7.4.1.4.1: SHA-256 and ECDSA. */
const ECDSA_SHA256 = Uint8Array.of(4, 3)
/** Numbers of RFC 6962 section 3.2: version 1, a timestamp of a certificate, a precertificate. */
const VERSION_1 = 0
const CERTIFICATE_TIMESTAMP = 0
const PRECERTIFICATE = Uint8Array.of(0, 1)

function promiseOf(
  { time, extensions }: Timestamp,
  { issuerKey, certificate }: { readonly issuerKey: Uint8Array; readonly certificate: Uint8Array },
): Uint8Array {
  const head = Uint8Array.of(VERSION_1, CERTIFICATE_TIMESTAMP)
  const { length } = certificate
  const size = Uint8Array.of(length >> 16, length >> 8, length)
  const signed = [sha256(issuerKey), size, certificate]
  return concatBytes(head, time, PRECERTIFICATE, ...signed, extensions)
}

/** `value` is DER of an OCTET STRING with a SignedCertificateTimestampList. */
function readTimestamps(value: Uint8Array<ArrayBuffer>): readonly Timestamp[] {
  const node = tryDecodeDer(value)
  if (node?.tag !== DER_TAGS.octetString) throw malformed()
  const list = readerOf(node.content)
  const all = readerOf(list.sized())
  list.end()
  const timestamps: Timestamp[] = []
  while (!all.isAtEnd()) {
    const one = readerOf(all.sized())
    if (one.take(1)[0] !== VERSION_1) throw malformed()
    const [logId, time] = [one.take(32), one.take(8)]
    const extensions = one.sized()
    const size = Uint8Array.of(extensions.length >> 8, extensions.length)
    const algorithm = one.take(2)
    const signature = one.sized()
    one.end()
    timestamps.push({
      logId,
      time,
      extensions: concatBytes(size, extensions),
      algorithm,
      signature,
    })
  }
  return timestamps
}

function readerOf(bytes: Uint8Array<ArrayBuffer>) {
  let offset = 0
  const take = (length: number) => {
    if (offset + length > bytes.length) throw malformed()
    offset += length
    return bytes.slice(offset - length, offset)
  }
  return {
    take,
    /** Bytes behind their length in two bytes. */
    sized: () => {
      const [high = 0, low = 0] = take(2)
      return take(256 * high + low)
    },
    isAtEnd: () => offset === bytes.length,
    end: () => {
      if (offset !== bytes.length) throw malformed()
    },
  }
}

function malformed() {
  return refuseBundle('timestamp_malformed', 'expected a list of signed certificate timestamps')
}

/**
 * Returns the TBSCertificate without the timestamps, as the log signed it. The extensions are its
 * last field, `[3]`.
 */
function withoutTimestamps(tbs: Uint8Array<ArrayBuffer>): Uint8Array {
  const fields = decodeDer(tbs).children
  const extensions = fields.at(-1)?.children[0]?.children ?? []
  const others = extensions.filter(({ children: [type] }) => !isTimestamps(type))
  const list = encode(DER_TAGS.sequence, ...others.map(({ encoding }) => encoding))
  const kept = fields.slice(0, -1).map(({ encoding }) => encoding)
  return encode(DER_TAGS.sequence, ...kept, encode(EXTENSIONS_FIELD, list))
}

const EXTENSIONS_FIELD = 0xa3

function isTimestamps(type: DerNode | undefined): boolean {
  return type !== undefined && decodeObjectIdentifier(type.content) === TIMESTAMPS
}

/** DER with a definite, minimal length of at most four bytes. */
function encode(tag: number, ...parts: readonly Uint8Array[]): Uint8Array {
  const content = concatBytes(...parts)
  const { length } = content
  const bytes = [length >>> 24, (length >> 16) & 0xff, (length >> 8) & 0xff, length & 0xff]
  const minimal = bytes.slice(bytes.findIndex((byte) => byte !== 0))
  const size = length < 0x80 ? [length] : [0x80 | minimal.length, ...minimal]
  return concatBytes(Uint8Array.of(tag, ...size), content)
}
