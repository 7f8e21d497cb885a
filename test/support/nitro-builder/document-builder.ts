import { createHash, createSign } from 'node:crypto'
import {
  type CborValue,
  type Encoded,
  encodeCbor,
  encoded,
  encodeIndefiniteMap,
} from './cbor-encoder.ts'
import { buildChain, type Chain, INSTANCE_ID, MADE_AT, MODULE_ID } from './development-pki.ts'

/** Fields of the payload by name, in order. A value of `undefined` leaves the field out. */
export type Fields = Readonly<Record<string, CborValue | undefined>>

/** What is different from a document that AWS makes. */
export type DocumentOptions = {
  readonly chain?: Chain
  readonly fields?: Fields
  /** A payload that replaces the payload made from the fields. */
  readonly payload?: Uint8Array
  /** Encode the payload's map with indefinite length, as AWS does since mid-2025. */
  readonly indefinite?: boolean
  /**
   * The four items of the envelope. If the header is not bytes, it is sent, and the standard header
   * is signed.
   */
  readonly protectedHeader?: CborValue
  readonly unprotectedHeader?: CborValue
  readonly payloadItem?: CborValue
  readonly signature?: Uint8Array
  readonly signatureItem?: CborValue
  /** Bytes before and after the envelope, hex. */
  readonly prefix?: string
  readonly suffix?: string
  /** The envelope's array in place of the four items. */
  readonly items?: (items: readonly CborValue[]) => CborValue
}

export const standardChain = buildChain()

/** PCR values that no test expects to be zero. */
export const PCR_VALUES: ReadonlyMap<number, Uint8Array> = new Map(
  Array.from({ length: 16 }, (_, index) => [index, pcrValue(index)]),
)

/**
 * Gives a document that a validator accepts when it trusts the chain's root; the options change it.
 */
export function buildDocument(options: DocumentOptions = {}): Uint8Array<ArrayBuffer> {
  const {
    chain = standardChain,
    protectedHeader = PROTECTED_HEADER,
    unprotectedHeader = new Map(),
  } = options
  const payload = options.payload ?? buildPayload(options)
  const header = protectedHeader instanceof Uint8Array ? protectedHeader : PROTECTED_HEADER
  const signature = options.signature ?? signDocument(chain, { header, payload })
  const items: readonly CborValue[] = [
    protectedHeader,
    unprotectedHeader,
    options.payloadItem === undefined ? payload : options.payloadItem,
    options.signatureItem === undefined ? signature : options.signatureItem,
  ]
  const envelope = encodeCbor(options.items?.(items) ?? items)
  return new Uint8Array(
    Buffer.concat([
      Buffer.from(options.prefix ?? '', 'hex'),
      envelope,
      Buffer.from(options.suffix ?? '', 'hex'),
    ]),
  )
}

/** Gives the payload's bytes. */
export function buildPayload({
  chain = standardChain,
  fields,
  indefinite,
}: DocumentOptions = {}): Uint8Array {
  const all: Fields = { ...standardFields(chain), ...fields }
  const entries = new Map<CborValue, CborValue>()
  for (const [key, value] of Object.entries(all)) if (value !== undefined) entries.set(key, value)
  return encodeCbor(indefinite ? encodeIndefiniteMap(entries) : entries)
}

/**
 * What the enclave of these documents passes to the security module. The generator of conformance
 * vectors puts its notary's values here before it makes any case (test/conformance/generate.ts).
 */
export const HANDED_IN: { public_key: Uint8Array; user_data: Uint8Array } = {
  public_key: Buffer.from('the public key'),
  user_data: Buffer.from('some user data'),
}

/** The fields, ordered and filled as AWS does. */
export function standardFields(chain: Chain = standardChain): Record<string, CborValue> {
  return {
    module_id: MODULE_ID,
    digest: 'SHA384',
    timestamp: MADE_AT.getTime(),
    pcrs: PCR_VALUES,
    certificate: chain.certificate,
    cabundle: chain.cabundle,
    ...HANDED_IN,
    nonce: Buffer.from('a nonce'),
  }
}

/** The ES384 signature r || s over the Sig_structure of header and payload. */
export function signDocument(
  { leafKey }: Chain,
  { header, payload }: { readonly header: Uint8Array; readonly payload: Uint8Array },
): Uint8Array {
  const signed = encodeCbor(['Signature1', header, new Uint8Array(), payload])
  return createSign('sha384')
    .update(signed)
    .sign({ key: leafKey.privateKey, dsaEncoding: 'ieee-p1363' })
}

export const PROTECTED_HEADER: Uint8Array = Buffer.from('a1013822', 'hex')

/** Encodes `fields` of the payload as pairs, so that a test can repeat or retype keys. */
export function fieldPairs(chain: Chain = standardChain): [CborValue, CborValue][] {
  return Object.entries(standardFields(chain))
}

/** CBOR given as hex. */
export function hex(text: string): Encoded {
  return encoded(text.replaceAll(' ', ''))
}

function pcrValue(index: number): Uint8Array {
  if (index === 4)
    return createHash('sha384').update(new Uint8Array(48)).update(INSTANCE_ID).digest()
  return createHash('sha384').update(`measured ${index}`).digest()
}
