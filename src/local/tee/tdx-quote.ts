import { createHash, sign } from 'node:crypto'
import { publicKeyInfo, type SigningKey } from '../x509/certificate-builder.ts'

type QuoteParts = {
  /** Header and body. In version 5, also the fields between them. */
  readonly signed: Uint8Array
  /** x || y of the attestation key. The QE report states this key. */
  readonly point: Uint8Array
  readonly quoteSigner: SigningKey
  readonly qeReport: Uint8Array
  readonly qeSigner: SigningKey
  /** The PCK certificate first, the root last. */
  readonly pem: string
}

/** The quoting enclave hashes these bytes together with its key. */
const AUTH_DATA = new Uint8Array(32).fill(0x0a)
/** MRSIGNER of the simulated quoting enclave. */
export const QE_SIGNER = new Uint8Array(32).fill(0x9e)

/** A TDX quote, as Intel's quoting enclave would sign it. */
export function buildQuote(parts: QuoteParts): Uint8Array<ArrayBuffer> {
  const certification = Buffer.concat([
    parts.qeReport,
    signRaw(parts.qeSigner, parts.qeReport),
    uint(AUTH_DATA.length, 2),
    AUTH_DATA,
    uint(5, 2),
    uint(Buffer.byteLength(parts.pem), 4),
    Buffer.from(parts.pem),
  ])
  const data = Buffer.concat([
    signRaw(parts.quoteSigner, parts.signed),
    parts.point,
    uint(6, 2),
    uint(certification.length, 4),
    certification,
  ])
  return new Uint8Array(Buffer.concat([parts.signed, uint(data.length, 4), data]))
}

/** The header of a TD's quote. A P-256 key signs the quote. */
export function quoteHeader(version: 4 | 5): Uint8Array {
  const header = new Uint8Array(48)
  header.set([version, 0, 2, 0, 0x81])
  header.set(Buffer.from('939a7233f79c4ca9940a0db3957f0607', 'hex'), 12)
  return header
}

/** TD 1.0 and TD 1.5. */
const BODY_BYTES = { '1.0': 584, '1.5': 648 } as const

/** The body of a TD without debugging. Measurements and report data are zeros. */
export function bodyOf(tdVersion: keyof typeof BODY_BYTES): Uint8Array {
  const body = new Uint8Array(BODY_BYTES[tdVersion])
  // The module's SVN is 5 and its version is 1. Component 2 is 7.
  body.set([5, 1, 7])
  body[123] = 0x10
  body.set([0xe7, 0x02, 0x06], 128)
  return body
}

/** RTMR1 to RTMR3 follow RTMR0. */
export const BODY_OFFSETS = { mrTd: 136, rtmr0: 328, reportData: 520 } as const

/** Returns the quoting enclave's report, which states the attestation key. */
export function qeReportOf(point: Uint8Array): Uint8Array {
  const report = new Uint8Array(384)
  report.set([0x11], 48)
  report.set(QE_SIGNER, 128)
  report.set([2, 0, 4, 0], 256)
  report.set(createHash('sha256').update(point).update(AUTH_DATA).digest(), 320)
  return report
}

/** r || s of ECDSA with SHA-256. */
export function signRaw({ privateKey }: SigningKey, data: Uint8Array): Uint8Array<ArrayBuffer> {
  return new Uint8Array(sign('sha256', data, { key: privateKey, dsaEncoding: 'ieee-p1363' }))
}

/** x || y of a key on P-256. */
export function rawPoint(key: SigningKey): Uint8Array {
  return publicKeyInfo(key).slice(-64)
}

/** Little-endian. */
export function uint(value: number, bytes: number): Uint8Array {
  const buffer = Buffer.alloc(bytes)
  buffer.writeUIntLE(value, 0, bytes)
  return buffer
}
