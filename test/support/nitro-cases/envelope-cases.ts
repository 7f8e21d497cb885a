import { type CborValue, encodeCbor, encoded } from '../nitro-builder/cbor-encoder.ts'
import {
  buildDocument,
  buildPayload,
  hex,
  signDocument,
  standardChain,
} from '../nitro-builder/document-builder.ts'
import type { Acceptance, Refusal } from './case.ts'

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
export const envelopeAcceptances: readonly Acceptance[] = [
  {
    rule: 1,
    name: 'the largest payload there may be',
    document: buildDocument({ payload: payloadOf(16_384) }),
  },
  { rule: 2, name: 'no tag', document: buildDocument() },
  { rule: 2, name: 'tag 18', document: buildDocument({ prefix: 'd2' }) },
  { rule: 3, name: 'the header {1: -35}', document: withHeader('a1013822') },
  {
    rule: 4,
    name: 'an empty unprotected header',
    document: buildDocument({ unprotectedHeader: new Map() }),
  },
  {
    rule: 5,
    name: 'a payload of 16384 bytes',
    document: buildDocument({ payload: payloadOf(16_384) }),
  },
  { rule: 6, name: 'nesting 16 deep, the payload included', document: withExtra(nested(15)) },
  {
    rule: 6,
    name: 'a payload of indefinite length',
    document: buildDocument({ indefinite: true }),
  },
  {
    rule: 6,
    name: 'integers up to 64 bits under an unknown key',
    document: withExtra(2n ** 64n - 1n),
  },
  {
    rule: 6,
    name: 'integers down to -2^64 under an unknown key',
    document: withExtra(-(2n ** 64n)),
  },
  {
    rule: 6,
    name: 'false, true and null under an unknown key',
    document: withExtra([false, true, null]),
  },
  {
    rule: 6,
    name: 'a map of integers and text under an unknown key',
    document: withExtra(
      new Map<CborValue, CborValue>([
        [-1, 1],
        [2n ** 60n, 1],
        [-(2n ** 60n), 1],
        ['text', 'ü'],
      ]),
    ),
  },
]

export const envelopeRefusals: readonly Refusal[] = [
  { code: 'document_too_large', name: '24577 bytes', document: new Uint8Array(24_577) },
  { code: 'document_too_large', name: 'a document with 24577 bytes', document: padded(24_577) },
  { code: 'envelope_trailing_bytes', name: '24576 bytes', document: padded(24_576) },
  { code: 'envelope_tag', name: 'tag 17', document: buildDocument({ prefix: 'd1' }) },
  { code: 'envelope_tag', name: 'tag 98 (COSE_Sign)', document: buildDocument({ prefix: 'd862' }) },
  { code: 'envelope_tag', name: 'tag 18 twice', document: buildDocument({ prefix: 'd2d2' }) },
  {
    code: 'envelope_tag',
    name: 'tag 61 (CWT) around tag 18',
    document: buildDocument({ prefix: 'd83dd2' }),
  },
  {
    code: 'cbor_not_minimal',
    name: 'tag 18 in two bytes',
    document: buildDocument({ prefix: 'd812' }),
  },
  {
    code: 'envelope_shape',
    name: 'three items',
    document: buildDocument({ items: (i) => i.slice(0, 3) }),
  },
  {
    code: 'envelope_shape',
    name: 'five items',
    document: buildDocument({ items: (i) => [...i, null] }),
  },
  { code: 'envelope_shape', name: 'a map', document: encodeCbor(new Map()) },
  { code: 'envelope_shape', name: 'one integer', document: Uint8Array.of(0) },
  {
    code: 'cbor_indefinite',
    name: 'an indefinite envelope',
    document: buildDocument({ items: indefiniteArray }),
  },
  {
    code: 'envelope_trailing_bytes',
    name: 'one more byte',
    document: buildDocument({ suffix: '00' }),
  },
  {
    code: 'protected_header_malformed',
    name: 'a map instead of bytes',
    document: buildDocument({ protectedHeader: hex('a1013822') }),
  },
  {
    code: 'protected_header_malformed',
    name: 'null',
    document: buildDocument({ protectedHeader: null }),
  },
  { code: 'protected_header_malformed', name: 'empty bytes', document: withHeader('') },
  { code: 'protected_header_malformed', name: 'an array', document: withHeader('8101') },
  {
    code: 'protected_header_malformed',
    name: 'bytes after the map',
    document: withHeader('a101382200'),
  },
  {
    code: 'protected_header_duplicate_key',
    name: 'alg twice',
    document: withHeader('a2013822013822'),
  },
  { code: 'protected_header_crit', name: 'crit', document: withHeader('a201382202810a') },
  { code: 'protected_header_algorithm', name: 'ES256', document: withHeader('a10126') },
  { code: 'protected_header_algorithm', name: 'ES512', document: withHeader('a1013823') },
  {
    code: 'protected_header_algorithm',
    name: 'alg as text',
    document: withHeader('a101654553333834'),
  },
  { code: 'protected_header_algorithm', name: 'no alg', document: withHeader('a0') },
  {
    code: 'protected_header_algorithm',
    name: 'alg under the text key "1"',
    document: withHeader('a161313822'),
  },
  {
    code: 'protected_header_unexpected_key',
    name: 'a key id',
    document: withHeader('a2013822044101'),
  },
  {
    code: 'cbor_indefinite',
    name: 'an indefinite protected header',
    document: withHeader('bf013822ff'),
  },
  {
    code: 'cbor_not_minimal',
    name: 'a protected header with a wide alg',
    document: withHeader('a101390022'),
  },
  {
    code: 'unprotected_header_not_empty',
    name: 'a key id',
    document: buildDocument({ unprotectedHeader: hex('a1044101') }),
  },
  {
    code: 'unprotected_header_malformed',
    name: 'null',
    document: buildDocument({ unprotectedHeader: null }),
  },
  {
    code: 'unprotected_header_malformed',
    name: 'an empty byte string',
    document: buildDocument({ unprotectedHeader: new Uint8Array() }),
  },
  {
    code: 'payload_malformed',
    name: 'a detached payload',
    document: buildDocument({ payloadItem: null }),
  },
  { code: 'payload_malformed', name: 'text', document: buildDocument({ payloadItem: 'payload' }) },
  {
    code: 'payload_size',
    name: 'an empty payload',
    document: buildDocument({ payload: new Uint8Array() }),
  },
  {
    code: 'payload_size',
    name: '16385 bytes',
    document: buildDocument({ payload: payloadOf(16_385) }),
  },
  { code: 'signature_malformed', name: 'null', document: buildDocument({ signatureItem: null }) },
  {
    code: 'signature_size',
    name: '95 bytes',
    document: buildDocument({ signature: signature.subarray(1) }),
  },
  {
    code: 'signature_size',
    name: '97 bytes',
    document: buildDocument({ signature: Buffer.concat([signature, Buffer.of(0)]) }),
  },
  {
    code: 'signature_size',
    name: 'no bytes',
    document: buildDocument({ signature: new Uint8Array() }),
  },
  { code: 'cbor_truncated', name: 'no bytes at all', document: new Uint8Array() },
  {
    code: 'cbor_truncated',
    name: 'the last byte missing',
    document: buildDocument().subarray(0, -1),
  },
  {
    code: 'cbor_truncated',
    name: 'an array that claims 2^64-1 items',
    document: Buffer.from('9bffffffffffffffff', 'hex'),
  },
  {
    code: 'cbor_truncated',
    name: 'a map that claims 2^64-1 pairs',
    document: withExtra(hex('bbffffffffffffffff')),
  },
  {
    code: 'cbor_truncated',
    name: 'a string that claims 2^64-1 bytes',
    document: withExtra(hex('5bffffffffffffffff')),
  },
  { code: 'cbor_not_minimal', name: 'an integer in two bytes', document: withExtra(hex('1817')) },
  {
    code: 'cbor_not_minimal',
    name: 'an integer in three bytes',
    document: withExtra(hex('1900ff')),
  },
  {
    code: 'cbor_not_minimal',
    name: 'an integer in five bytes',
    document: withExtra(hex('1a0000ffff')),
  },
  {
    code: 'cbor_not_minimal',
    name: 'an integer in nine bytes',
    document: withExtra(hex('1b00000000ffffffff')),
  },
  { code: 'cbor_not_minimal', name: 'a negative integer', document: withExtra(hex('3817')) },
  { code: 'cbor_not_minimal', name: 'a string length', document: withExtra(hex('580100')) },
  { code: 'cbor_not_minimal', name: 'a text length', document: withExtra(hex('780161')) },
  { code: 'cbor_not_minimal', name: 'an array length', document: withExtra(hex('980100')) },
  { code: 'cbor_not_minimal', name: 'a map length', document: withExtra(hex('b8010000')) },
  { code: 'cbor_reserved', name: 'additional information 28', document: withExtra(hex('1c')) },
  { code: 'cbor_reserved', name: 'additional information 29', document: withExtra(hex('5d')) },
  { code: 'cbor_reserved', name: 'additional information 30', document: withExtra(hex('fe')) },
  {
    code: 'cbor_reserved',
    name: 'an integer of indefinite length',
    document: withExtra(hex('1f')),
  },
  { code: 'cbor_reserved', name: 'a tag of indefinite length', document: withExtra(hex('df00')) },
  { code: 'cbor_tag', name: 'a tagged value', document: withExtra(hex('c100')) },
  { code: 'cbor_tag', name: 'a tagged key', document: withExtra(hex('a1c10000')) },
  {
    code: 'cbor_tag',
    name: 'a tagged payload',
    document: buildDocument({ payload: Buffer.concat([Buffer.of(0xd2), buildPayload()]) }),
  },
  {
    code: 'cbor_tag',
    name: 'a tag inside the envelope',
    document: buildDocument({
      items: ([a = null, ...rest]) => [
        encoded(Buffer.concat([Buffer.of(0xd2), encodeCbor(a)])),
        ...rest,
      ],
    }),
  },
  { code: 'cbor_float', name: 'a half float', document: withExtra(hex('f93c00')) },
  { code: 'cbor_float', name: 'a single float', document: withExtra(hex('fa3f800000')) },
  { code: 'cbor_float', name: 'a double', document: withExtra(hex('fb3ff0000000000000')) },
  {
    code: 'cbor_float',
    name: 'the timestamp as a double',
    document: buildDocument({ fields: { timestamp: hex('fb427700b0a0000000') } }),
  },
  { code: 'cbor_simple', name: 'undefined', document: withExtra(hex('f7')) },
  {
    code: 'cbor_simple',
    name: 'public_key undefined',
    document: buildDocument({ fields: { public_key: hex('f7') } }),
  },
  { code: 'cbor_simple', name: 'an unassigned simple value', document: withExtra(hex('e0')) },
  { code: 'cbor_simple', name: 'a simple value in two bytes', document: withExtra(hex('f820')) },
  { code: 'cbor_simple', name: 'true in two bytes', document: withExtra(hex('f815')) },
  { code: 'cbor_chunked_string', name: 'bytes in chunks', document: withExtra(hex('5f4100ff')) },
  { code: 'cbor_chunked_string', name: 'text in chunks', document: withExtra(hex('7f6161ff')) },
  {
    code: 'cbor_chunked_string',
    name: 'a key in chunks',
    document: withExtra(hex('a17f6161ff00')),
  },
  {
    code: 'cbor_chunked_string',
    name: 'the payload in chunks',
    document: buildDocument({ payloadItem: chunked(buildPayload()) }),
  },
  {
    code: 'cbor_indefinite',
    name: 'pcrs of indefinite length',
    document: buildDocument({ fields: { pcrs: hex('bfff') } }),
  },
  {
    code: 'cbor_indefinite',
    name: 'an array of indefinite length',
    document: withExtra(hex('9fff')),
  },
  { code: 'cbor_stray_break', name: 'a break as a value', document: withExtra(hex('ff')) },
  { code: 'cbor_stray_break', name: 'a break as a key', document: withExtra(hex('a1ff00')) },
  {
    code: 'cbor_stray_break',
    name: 'a key without a value',
    document: buildDocument({ payload: Buffer.from('bf6161ff', 'hex') }),
  },
  {
    code: 'cbor_too_deep',
    name: 'nesting 17 deep, the payload included',
    document: withExtra(nested(16)),
  },
  {
    code: 'cbor_too_deep',
    name: 'nesting as deep as the payload holds',
    document: withExtra(nested(5000)),
  },
  {
    code: 'cbor_key_type',
    name: 'bytes as a key of an inner map',
    document: withExtra(hex('a1410000')),
  },
  {
    code: 'cbor_key_type',
    name: 'an array as a key of an inner map',
    document: withExtra(hex('a18000')),
  },
  {
    code: 'cbor_duplicate_key',
    name: 'a key twice in an inner map',
    document: withExtra(hex('a200000000')),
  },
  {
    code: 'cbor_duplicate_key',
    name: 'a label twice in the unprotected header',
    document: buildDocument({ unprotectedHeader: hex('a204410104 4101') }),
  },
  { code: 'cbor_invalid_utf8', name: 'text that is no UTF-8', document: withExtra(hex('61ff')) },
  { code: 'cbor_invalid_utf8', name: 'a surrogate in UTF-8', document: withExtra(hex('63eda080')) },
  {
    code: 'cbor_invalid_utf8',
    name: 'module_id that is no UTF-8',
    document: buildDocument({ fields: { module_id: hex('62c328') } }),
  },
]

function padded(length: number): Uint8Array {
  return Buffer.concat([buildDocument(), new Uint8Array(length)]).subarray(0, length)
}

function chunked(bytes: Uint8Array) {
  return encoded(Buffer.concat([Buffer.of(0x5f), encodeCbor(bytes), Buffer.of(0xff)]))
}
