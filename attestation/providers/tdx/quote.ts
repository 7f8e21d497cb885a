import { decodeHex, equalBytes } from '../../bytes.ts'
import { latin1 } from '../../nitro/der.ts'
import { parsePemChain } from '../provider-chain.ts'
import { tdxFault } from './tdx-codes.ts'

/** Real quotes have about 5,000 bytes, and up to 3,065 ignored bytes at the end. */
const TDX_QUOTE_BYTES_MAX = 32_768

/** The report of a TD (Intel TDX DCAP Quote Generation Library, TD Quote Body). */
export type TdxBody = {
  /** Only '1.5' has the last two members. */
  readonly tdVersion: '1.0' | '1.5'
  /** 16 bytes. [0] is the SVN of the TDX module, [1] the module's version. */
  readonly teeTcbSvn: Uint8Array
  readonly mrSeam: Uint8Array
  readonly mrSignerSeam: Uint8Array
  readonly seamAttributes: Uint8Array
  /** 8 bytes in the order of the quote. The lowest bit of byte 0 is DEBUG. */
  readonly tdAttributes: Uint8Array
  readonly xfam: Uint8Array
  /** 48 bytes, like all measurements. */
  readonly mrTd: Uint8Array
  readonly mrConfigId: Uint8Array
  readonly mrOwner: Uint8Array
  readonly mrOwnerConfig: Uint8Array
  /** RTMR0 to RTMR3. */
  readonly rtmrs: readonly Uint8Array[]
  /** 64 bytes that the code in the TD chose. */
  readonly reportData: Uint8Array
  readonly teeTcbSvn2: Uint8Array | null
  readonly mrServiceTd: Uint8Array | null
}

/** REPORTBODY of Intel SGX, for the quoting enclave. */
export type QeReport = {
  readonly bytes: Uint8Array<ArrayBuffer>
  readonly miscSelect: Uint8Array
  readonly attributes: Uint8Array
  readonly mrSigner: Uint8Array
  readonly isvProdId: number
  readonly isvSvn: number
  readonly reportData: Uint8Array
}

/** All parts are only claimed until the quote is verified. */
export type TdxQuote = {
  readonly version: 4 | 5
  readonly body: TdxBody
  /** The header and the body, which the attestation key signed. */
  readonly signed: Uint8Array<ArrayBuffer>
  /** r || s, big-endian, like `qeSignature`. */
  readonly signature: Uint8Array<ArrayBuffer>
  /** x || y. */
  readonly attestationKey: Uint8Array<ArrayBuffer>
  readonly qeReport: QeReport
  readonly qeSignature: Uint8Array<ArrayBuffer>
  readonly qeAuthData: Uint8Array
  /** DER, root first, the PCK certificate last. */
  readonly pckChain: readonly Uint8Array<ArrayBuffer>[]
}

/**
 * Decodes an attacker-controlled quote: version 4 or 5, ECDSA P-256, TDX, Intel's quoting enclave,
 * three certificates. Every length must be exact. Ignores bytes after the declared end, since
 * services add padding. Verifies no signature. Throws ProviderEvidenceError.
 */
export function decodeTdxQuote(given: Uint8Array): TdxQuote {
  if (given.length < HEADER_BYTES + BODY_BYTES['1.0'] || given.length > TDX_QUOTE_BYTES_MAX)
    throw tdxFault('quote_size', `expected a quote of at most ${TDX_QUOTE_BYTES_MAX} bytes`)
  const bytes = new Uint8Array(given)
  const version = decodeHeader(bytes)
  const { start, tdVersion } = locateBody(bytes, version)
  const end = start + BODY_BYTES[tdVersion]
  const body = decodeBody(bytes.subarray(start, end), tdVersion)
  const cursor: Cursor = { bytes, offset: end, end: bytes.length }
  cursor.end = nextSize(cursor, 4) + cursor.offset
  if (cursor.end > bytes.length) throw truncated()
  return {
    version,
    body,
    signed: bytes.subarray(0, end),
    signature: next(cursor, 64),
    attestationKey: next(cursor, 64),
    ...decodeCertification(cursor),
  }
}

const HEADER_BYTES = 48
const KEY_TYPE_ECDSA_P256 = 2
const TEE_TYPE_TDX = 0x81
/** Intel's quoting enclave (header, offset 12). */
const QE_VENDOR_INTEL = decodeHex('939a7233f79c4ca9940a0db3957f0607')

function decodeHeader(bytes: Uint8Array<ArrayBuffer>): 4 | 5 {
  const version = littleEndian(bytes, 0, 2)
  if (version !== 4 && version !== 5)
    throw tdxFault('quote_version', `expected a quote of version 4 or 5, got ${version}`)
  if (littleEndian(bytes, 2, 2) !== KEY_TYPE_ECDSA_P256)
    throw tdxFault('quote_key_type', 'expected an attestation key of type 2, ECDSA P-256')
  if (littleEndian(bytes, 4, 4) !== TEE_TYPE_TDX)
    throw tdxFault('quote_tee_type', 'expected a quote of TEE type 0x81, TDX')
  if (!equalBytes(bytes.subarray(12, 28), QE_VENDOR_INTEL))
    throw tdxFault('quote_qe_vendor', "expected Intel's quoting enclave as the vendor")
  return version
}

const BODY_BYTES = { '1.0': 584, '1.5': 648 } as const
/** Keyed by the body type, which quotes have from version 5 on. */
const TD_VERSIONS: ReadonlyMap<number, TdxBody['tdVersion']> = new Map([
  [2, '1.0'],
  [3, '1.5'],
])

function locateBody(
  bytes: Uint8Array<ArrayBuffer>,
  version: 4 | 5,
): { readonly start: number; readonly tdVersion: TdxBody['tdVersion'] } {
  if (version === 4) return { start: HEADER_BYTES, tdVersion: '1.0' }
  const type = littleEndian(bytes, HEADER_BYTES, 2)
  const tdVersion = TD_VERSIONS.get(type)
  if (!tdVersion) throw tdxFault('quote_body_type', `expected a body of type 2 or 3, got ${type}`)
  const size = littleEndian(bytes, HEADER_BYTES + 2, 4)
  if (size !== BODY_BYTES[tdVersion])
    throw tdxFault('quote_body_size', `expected a body of ${BODY_BYTES[tdVersion]} bytes`)
  const start = HEADER_BYTES + 6
  if (start + size > bytes.length) throw truncated()
  return { start, tdVersion }
}

function decodeBody(body: Uint8Array, tdVersion: TdxBody['tdVersion']): TdxBody {
  const at = (offset: number, length: number) => body.subarray(offset, offset + length)
  return {
    tdVersion,
    teeTcbSvn: at(0, 16),
    mrSeam: at(16, 48),
    mrSignerSeam: at(64, 48),
    seamAttributes: at(112, 8),
    tdAttributes: at(120, 8),
    xfam: at(128, 8),
    mrTd: at(136, 48),
    mrConfigId: at(184, 48),
    mrOwner: at(232, 48),
    mrOwnerConfig: at(280, 48),
    rtmrs: [at(328, 48), at(376, 48), at(424, 48), at(472, 48)],
    reportData: at(520, 64),
    teeTcbSvn2: tdVersion === '1.5' ? at(584, 16) : null,
    mrServiceTd: tdVersion === '1.5' ? at(600, 48) : null,
  }
}

/** Types of certification data. */
const CERTIFICATION_QE_REPORT = 6
const CERTIFICATION_PEM_CHAIN = 5
const PCK_CHAIN_CERTIFICATES = 3

function decodeCertification(
  cursor: Cursor,
): Pick<TdxQuote, 'qeReport' | 'qeSignature' | 'qeAuthData' | 'pckChain'> {
  if (nextSize(cursor, 2) !== CERTIFICATION_QE_REPORT)
    throw tdxFault('quote_certification_type', 'expected certification data of type 6')
  if (nextSize(cursor, 4) !== cursor.end - cursor.offset)
    throw tdxFault('quote_certification_size', 'expected certification data up to the end')
  const qeReport = decodeQeReport(next(cursor, 384))
  const qeSignature = next(cursor, 64)
  const qeAuthData = next(cursor, nextSize(cursor, 2))
  if (nextSize(cursor, 2) !== CERTIFICATION_PEM_CHAIN)
    throw tdxFault('quote_chain_type', 'expected a PCK chain of type 5, PEM')
  if (nextSize(cursor, 4) !== cursor.end - cursor.offset)
    throw tdxFault('quote_chain_size', 'expected a PCK chain up to the end')
  const pem = latin1(next(cursor, cursor.end - cursor.offset))
  const ders = parsePemChain(pem, 'PCK chain')
  if (ders.length !== PCK_CHAIN_CERTIFICATES)
    throw tdxFault(
      'quote_chain_length',
      `expected ${PCK_CHAIN_CERTIFICATES} certificates, got ${ders.length}`,
    )
  return { qeReport, qeSignature, qeAuthData, pckChain: ders.toReversed() }
}

function decodeQeReport(bytes: Uint8Array<ArrayBuffer>): QeReport {
  return {
    bytes,
    miscSelect: bytes.subarray(16, 20),
    attributes: bytes.subarray(48, 64),
    mrSigner: bytes.subarray(128, 160),
    isvProdId: littleEndian(bytes, 256, 2),
    isvSvn: littleEndian(bytes, 258, 2),
    reportData: bytes.subarray(320, 384),
  }
}

/** The signature data end at `end`. */
type Cursor = { readonly bytes: Uint8Array<ArrayBuffer>; offset: number; end: number }

function next(cursor: Cursor, length: number): Uint8Array<ArrayBuffer> {
  const { bytes, offset, end } = cursor
  if (offset + length > end) throw truncated()
  cursor.offset = offset + length
  return bytes.subarray(offset, offset + length)
}

function nextSize(cursor: Cursor, length: 2 | 4): number {
  return littleEndian(next(cursor, length), 0, length)
}

function truncated() {
  return tdxFault('quote_truncated', 'expected every part of the quote within its declared end')
}

/** An unsigned number of 1 to 6 bytes. */
function littleEndian(bytes: Uint8Array, offset: number, length: number): number {
  let value = 0
  for (let index = length - 1; index >= 0; index--)
    value = value * 256 + (bytes[offset + index] ?? 0)
  return value
}
