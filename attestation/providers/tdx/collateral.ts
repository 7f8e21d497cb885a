import { decodeHex, encodeUtf8 } from '../../bytes.ts'
import { decodeUtf8 } from '../../json/decode-utf8.ts'
import { JsonError } from '../../json/json-error.ts'
import { tdxFault } from './tdx-codes.ts'

export type SignedText = {
  /** The exact bytes that Intel signed. */
  readonly signed: Uint8Array<ArrayBuffer>
  /** r || s, big-endian, 64 bytes. */
  readonly signature: Uint8Array<ArrayBuffer>
  /** PEM: the TCB signing certificate, then the root. */
  readonly issuerChain: string
}

/**
 * Intel's statements about a platform and its software (PCS, version 4). Each is valid until a
 * stated time.
 */
export type TdxCollateral = {
  /** From the path `tcb?fmspc=…`. */
  readonly tcbInfo: SignedText
  /** From the path `qe/identity`. */
  readonly qeIdentity: SignedText
  /**
   * DER, DER in hexadecimal text, or PEM. `rootCrl` is from `rootcacrl`, `pckCrl` is from `pckcrl`
   * for the CA of the PCK certificate.
   */
  readonly rootCrl: Uint8Array
  readonly pckCrl: Uint8Array
  /** From the path `tcbevaluationdatanumbers`. Null if it was not kept. */
  readonly evaluationNumbers: SignedText | null
}

/** Real responses have about 5,000 bytes. */
const RESPONSE_BYTES_MAX = 262_144

const RESPONSE_CODES = {
  tcbInfo: 'tcb_info_malformed',
  enclaveIdentity: 'qe_identity_malformed',
  tcbEvaluationDataNumbers: 'evaluation_numbers_malformed',
} as const

/**
 * Takes the signed object, with its exact bytes, out of a response of Intel's PCS. The response is
 * `{"tcbInfo":{…},"signature":"…"}`, or has another member in place of `tcbInfo`. `issuerChain` is
 * the header with the issuer chain of the response, URL-encoded or PEM.
 * Verifies no signature. Throws ProviderEvidenceError.
 */
export function readSignedResponse(
  body: Uint8Array,
  {
    member,
    issuerChain,
  }: { readonly member: keyof typeof RESPONSE_CODES; readonly issuerChain: string },
): SignedText {
  const code = RESPONSE_CODES[member]
  const text = body.length > RESPONSE_BYTES_MAX ? '' : textOf(body)
  const prefix = `{"${member}":`
  const end = /,"signature":"([0-9a-fA-F]{128})"\}\s*$/.exec(text)
  if (!text.startsWith(prefix) || !end)
    throw tdxFault(code, `expected a response of ${member} and signature`)
  return {
    signed: new Uint8Array(encodeUtf8(text.slice(prefix.length, end.index))),
    signature: new Uint8Array(decodeHex(end[1] ?? '')),
    issuerChain: decodeIssuerChain(issuerChain),
  }
}

/** Decodes the header if it is URL-encoded. Returns other text unchanged. */
function decodeIssuerChain(header: string): string {
  try {
    return decodeURIComponent(header)
  } catch (fault) {
    if (fault instanceof URIError) return header
    throw fault
  }
}

function textOf(bytes: Uint8Array): string {
  try {
    return decodeUtf8(bytes)
  } catch (fault) {
    if (fault instanceof JsonError) return ''
    throw fault
  }
}
