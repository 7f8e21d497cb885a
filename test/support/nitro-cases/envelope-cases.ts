import { type CborValue, encodeCbor, encoded } from '../nitro-builder/cbor-encoder.ts'
import {
  buildDocument,
  buildPayload,
  hex,
  signDocument,
  standardChain,
} from '../nitro-builder/document-builder.ts'
import { acceptancesOf, refusalsOf } from './case.ts'

const nested = (depth: number) => hex(`${'81'.repeat(depth)}00`)
const withExtra = (extra: CborValue) => buildDocument({ fields: { extra } })
const withHeader = (header: string) =>
  buildDocument({ protectedHeader: Buffer.from(header, 'hex') })

/** A payload of exactly `length` bytes, filled with an unknown key. */
function payloadOf(length: number): Uint8Array {
  const overhead = buildPayload({ fields: { filler: new Uint8Array(10_000) } }).length - 10_000
  return buildPayload({ fields: { filler: new Uint8Array(length - overhead) } })
}

const indefiniteArray = (items: readonly CborValue[]) =>
  encoded(
    Buffer.concat([Buffer.of(0x9f), ...items.map((item) => encodeCbor(item)), Buffer.of(0xff)]),
  )

const signature = signDocument(standardChain, {
  header: Buffer.from('a1013822', 'hex'),
  payload: buildPayload(),
})

/** Rules 1 to 6. */
export const envelopeAcceptances = acceptancesOf({
  1: { 'the largest payload there may be': buildDocument({ payload: payloadOf(16_384) }) },
  2: {
    'no tag': buildDocument(),
    'tag 18': buildDocument({ prefix: 'd2' }),
  },
  3: { 'the header {1: -35}': withHeader('a1013822') },
  4: { 'an empty unprotected header': buildDocument({ unprotectedHeader: new Map() }) },
  5: { 'a payload of 16384 bytes': buildDocument({ payload: payloadOf(16_384) }) },
  6: {
    'nesting 16 deep, the payload included': withExtra(nested(15)),
    'a payload of indefinite length': buildDocument({ indefinite: true }),
    'integers up to 64 bits under an unknown key': withExtra(2n ** 64n - 1n),
    'integers down to -2^64 under an unknown key': withExtra(-(2n ** 64n)),
    'false, true and null under an unknown key': withExtra([false, true, null]),
    'a map of integers and text under an unknown key': withExtra(
      new Map<CborValue, CborValue>([
        [-1, 1],
        [2n ** 60n, 1],
        [-(2n ** 60n), 1],
        ['text', 'ü'],
      ]),
    ),
  },
})

export const envelopeRefusals = refusalsOf({
  document_too_large: {
    '24577 bytes': new Uint8Array(24_577),
    'a document with 24577 bytes': padded(24_577),
  },
  envelope_trailing_bytes: {
    '24576 bytes': padded(24_576),
    'one more byte': buildDocument({ suffix: '00' }),
  },
  envelope_tag: {
    'tag 17': buildDocument({ prefix: 'd1' }),
    'tag 98 (COSE_Sign)': buildDocument({ prefix: 'd862' }),
    'tag 18 twice': buildDocument({ prefix: 'd2d2' }),
    'tag 61 (CWT) around tag 18': buildDocument({ prefix: 'd83dd2' }),
  },
  cbor_not_minimal: {
    'tag 18 in two bytes': buildDocument({ prefix: 'd812' }),
    'a protected header with a wide alg': withHeader('a101390022'),
    'an integer in two bytes': withExtra(hex('1817')),
    'an integer in three bytes': withExtra(hex('1900ff')),
    'an integer in five bytes': withExtra(hex('1a0000ffff')),
    'an integer in nine bytes': withExtra(hex('1b00000000ffffffff')),
    'a negative integer': withExtra(hex('3817')),
    'a string length': withExtra(hex('580100')),
    'a text length': withExtra(hex('780161')),
    'an array length': withExtra(hex('980100')),
    'a map length': withExtra(hex('b8010000')),
  },
  envelope_shape: {
    'three items': buildDocument({ items: (i) => i.slice(0, 3) }),
    'five items': buildDocument({ items: (i) => [...i, null] }),
    'a map': encodeCbor(new Map()),
    'one integer': Uint8Array.of(0),
  },
  cbor_indefinite: {
    'an indefinite envelope': buildDocument({ items: indefiniteArray }),
    'an indefinite protected header': withHeader('bf013822ff'),
    'pcrs of indefinite length': buildDocument({ fields: { pcrs: hex('bfff') } }),
    'an array of indefinite length': withExtra(hex('9fff')),
  },
  protected_header_malformed: {
    'a map instead of bytes': buildDocument({ protectedHeader: hex('a1013822') }),
    null: buildDocument({ protectedHeader: null }),
    'empty bytes': withHeader(''),
    'an array': withHeader('8101'),
    'bytes after the map': withHeader('a101382200'),
  },
  protected_header_duplicate_key: { 'alg twice': withHeader('a2013822013822') },
  protected_header_crit: { crit: withHeader('a201382202810a') },
  protected_header_algorithm: {
    ES256: withHeader('a10126'),
    ES512: withHeader('a1013823'),
    'alg as text': withHeader('a101654553333834'),
    'no alg': withHeader('a0'),
    'alg under the text key "1"': withHeader('a161313822'),
  },
  protected_header_unexpected_key: { 'a key id': withHeader('a2013822044101') },
  unprotected_header_not_empty: {
    'a key id': buildDocument({ unprotectedHeader: hex('a1044101') }),
  },
  unprotected_header_malformed: {
    null: buildDocument({ unprotectedHeader: null }),
    'an empty byte string': buildDocument({ unprotectedHeader: new Uint8Array() }),
  },
  payload_malformed: {
    'a detached payload': buildDocument({ payloadItem: null }),
    text: buildDocument({ payloadItem: 'payload' }),
  },
  payload_size: {
    'an empty payload': buildDocument({ payload: new Uint8Array() }),
    '16385 bytes': buildDocument({ payload: payloadOf(16_385) }),
  },
  signature_malformed: { null: buildDocument({ signatureItem: null }) },
  signature_size: {
    '95 bytes': buildDocument({ signature: signature.subarray(1) }),
    '97 bytes': buildDocument({ signature: Buffer.concat([signature, Buffer.of(0)]) }),
    'no bytes': buildDocument({ signature: new Uint8Array() }),
  },
  cbor_truncated: {
    'no bytes at all': new Uint8Array(),
    'the last byte missing': buildDocument().subarray(0, -1),
    'an array that claims 2^64-1 items': Buffer.from('9bffffffffffffffff', 'hex'),
    'a map that claims 2^64-1 pairs': withExtra(hex('bbffffffffffffffff')),
    'a string that claims 2^64-1 bytes': withExtra(hex('5bffffffffffffffff')),
  },
  cbor_reserved: {
    'additional information 28': withExtra(hex('1c')),
    'additional information 29': withExtra(hex('5d')),
    'additional information 30': withExtra(hex('fe')),
    'an integer of indefinite length': withExtra(hex('1f')),
    'a tag of indefinite length': withExtra(hex('df00')),
  },
  cbor_tag: {
    'a tagged value': withExtra(hex('c100')),
    'a tagged key': withExtra(hex('a1c10000')),
    'a tagged payload': buildDocument({
      payload: Buffer.concat([Buffer.of(0xd2), buildPayload()]),
    }),
    'a tag inside the envelope': buildDocument({
      items: ([a = null, ...rest]) => [
        encoded(Buffer.concat([Buffer.of(0xd2), encodeCbor(a)])),
        ...rest,
      ],
    }),
  },
  cbor_float: {
    'a half float': withExtra(hex('f93c00')),
    'a single float': withExtra(hex('fa3f800000')),
    'a double': withExtra(hex('fb3ff0000000000000')),
    'the timestamp as a double': buildDocument({
      fields: { timestamp: hex('fb427700b0a0000000') },
    }),
  },
  cbor_simple: {
    undefined: withExtra(hex('f7')),
    'public_key undefined': buildDocument({ fields: { public_key: hex('f7') } }),
    'an unassigned simple value': withExtra(hex('e0')),
    'a simple value in two bytes': withExtra(hex('f820')),
    'true in two bytes': withExtra(hex('f815')),
  },
  cbor_chunked_string: {
    'bytes in chunks': withExtra(hex('5f4100ff')),
    'text in chunks': withExtra(hex('7f6161ff')),
    'a key in chunks': withExtra(hex('a17f6161ff00')),
    'the payload in chunks': buildDocument({ payloadItem: chunked(buildPayload()) }),
  },
  cbor_stray_break: {
    'a break as a value': withExtra(hex('ff')),
    'a break as a key': withExtra(hex('a1ff00')),
    'a key without a value': buildDocument({ payload: Buffer.from('bf6161ff', 'hex') }),
  },
  cbor_too_deep: {
    'nesting 17 deep, the payload included': withExtra(nested(16)),
    'nesting as deep as the payload holds': withExtra(nested(5000)),
  },
  cbor_key_type: {
    'bytes as a key of an inner map': withExtra(hex('a1410000')),
    'an array as a key of an inner map': withExtra(hex('a18000')),
  },
  cbor_duplicate_key: {
    'a key twice in an inner map': withExtra(hex('a200000000')),
    'a label twice in the unprotected header': buildDocument({
      unprotectedHeader: hex('a204410104 4101'),
    }),
  },
  cbor_invalid_utf8: {
    'text that is no UTF-8': withExtra(hex('61ff')),
    'a surrogate in UTF-8': withExtra(hex('63eda080')),
    'module_id that is no UTF-8': buildDocument({ fields: { module_id: hex('62c328') } }),
  },
})

function padded(length: number): Uint8Array {
  return Buffer.concat([buildDocument(), new Uint8Array(length)]).subarray(0, length)
}

function chunked(bytes: Uint8Array) {
  return encoded(Buffer.concat([Buffer.of(0x5f), encodeCbor(bytes), Buffer.of(0xff)]))
}
