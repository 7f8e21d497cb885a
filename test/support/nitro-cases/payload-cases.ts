import { type CborValue, encodeCbor, encodePairs } from '../nitro-builder/cbor-encoder.ts'
import { extension } from '../nitro-builder/certificate-builder.ts'
import { octetString } from '../nitro-builder/der-encoder.ts'
import {
  buildDocument,
  buildPayload,
  type DocumentOptions,
  type Fields,
  fieldPairs,
  hex,
  PCR_VALUES,
  standardChain,
} from '../nitro-builder/document-builder.ts'
import type { Acceptance, Refusal } from './case.ts'
import { alsoExtended, unknown } from './certificate-documents.ts'

const withFields = (fields: Fields, options?: DocumentOptions) =>
  buildDocument({ ...options, fields })
const withPairs = (...extra: readonly [CborValue, CborValue][]) =>
  buildDocument({ payload: encodeCbor(encodePairs([...fieldPairs(), ...extra])) })
const withPcrs = (...extra: readonly [CborValue, CborValue][]) =>
  withFields({ pcrs: encodePairs([...PCR_VALUES, ...extra]) })
const pcrsOf = (indexes: readonly number[]) =>
  withFields({ pcrs: new Map(indexes.map((i) => [i, pcr])) })

const pcr = new Uint8Array(48).fill(7)
const kilobyte = new Uint8Array(1024).fill(1)
const tooLong = new Uint8Array(1025).fill(1)
/** Makes any certificate of the chain longer than 1024 bytes. */
const LONG_EXTENSION = extension(unknown, {
  critical: false,
  value: octetString(new Uint8Array(800)),
})
const upTo = (count: number) => Array.from({ length: count }, (_, index) => index)

/** Rules 7 to 12. */
export const payloadAcceptances: readonly Acceptance[] = [
  { rule: 7, name: 'a definite map', document: buildDocument() },
  { rule: 7, name: 'an indefinite map', document: buildDocument({ indefinite: true }) },
  { rule: 7, name: 'an unknown key', document: withFields({ something_new: [1, 'two'] }) },
  {
    rule: 7,
    name: 'the unknown keys __proto__ and constructor',
    document: withPairs(['__proto__', 1], ['constructor', 2]),
  },
  { rule: 8, name: 'a module_id of another form', document: withFields({ module_id: 'x' }) },
  { rule: 9, name: 'PCR0 to 2 alone', document: pcrsOf([0, 1, 2]) },
  { rule: 9, name: 'sparse PCRs', document: pcrsOf([0, 1, 2, 8, 31]) },
  { rule: 9, name: 'PCRs in another order', document: pcrsOf([31, 2, 1, 0]) },
  { rule: 9, name: '32 PCRs', document: pcrsOf(upTo(32)) },
  { rule: 10, name: 'certificates of ordinary size', document: buildDocument() },
  {
    rule: 11,
    name: 'all three null',
    document: withFields({ public_key: null, user_data: null, nonce: null }),
  },
  {
    rule: 11,
    name: 'all three absent',
    document: withFields({ public_key: undefined, user_data: undefined, nonce: undefined }),
  },
  {
    rule: 11,
    name: 'all three of 1024 bytes',
    document: withFields({ public_key: kilobyte, user_data: kilobyte, nonce: kilobyte }),
  },
  {
    rule: 11,
    name: 'empty user_data and nonce',
    document: withFields({ user_data: new Uint8Array(), nonce: new Uint8Array() }),
  },
  { rule: 12, name: 'no nitrotpm_pcrs', document: buildDocument() },
]

export const payloadRefusals: readonly Refusal[] = [
  {
    code: 'payload_not_map',
    name: 'an array',
    document: buildDocument({ payload: encodeCbor([]) }),
  },
  {
    code: 'payload_not_map',
    name: 'an integer',
    document: buildDocument({ payload: Uint8Array.of(0) }),
  },
  { code: 'payload_key_type', name: 'an integer key', document: withPairs([1, 1]) },
  { code: 'payload_key_type', name: 'a bytes key', document: withPairs([Uint8Array.of(1), 1]) },
  {
    code: 'payload_duplicate_key',
    name: 'user_data twice',
    document: withPairs(['user_data', Uint8Array.of(1)]),
  },
  {
    code: 'payload_duplicate_key',
    name: 'an unknown key twice',
    document: withPairs(['new', 1], ['new', 1]),
  },
  {
    code: 'payload_duplicate_key',
    name: 'nonce twice, with the same value',
    document: withPairs(['nonce', Buffer.from('a nonce')]),
  },
  {
    code: 'payload_trailing_bytes',
    name: 'a byte after the map',
    document: buildDocument({ payload: Buffer.concat([buildPayload(), Buffer.of(0xf6)]) }),
  },
  {
    code: 'payload_trailing_bytes',
    name: 'a byte after the break',
    document: buildDocument({
      payload: Buffer.concat([buildPayload({ indefinite: true }), Buffer.of(0xff)]),
    }),
  },
  { code: 'module_id_invalid', name: 'empty', document: withFields({ module_id: '' }) },
  { code: 'module_id_invalid', name: 'absent', document: withFields({ module_id: undefined }) },
  {
    code: 'module_id_invalid',
    name: 'bytes',
    document: withFields({ module_id: Buffer.from('i-1') }),
  },
  { code: 'digest_invalid', name: 'SHA256', document: withFields({ digest: 'SHA256' }) },
  { code: 'digest_invalid', name: 'lower case', document: withFields({ digest: 'sha384' }) },
  { code: 'digest_invalid', name: 'absent', document: withFields({ digest: undefined }) },
  { code: 'timestamp_invalid', name: 'zero', document: withFields({ timestamp: 0 }) },
  { code: 'timestamp_invalid', name: 'negative', document: withFields({ timestamp: -1 }) },
  { code: 'timestamp_invalid', name: 'text', document: withFields({ timestamp: '1772600767000' }) },
  { code: 'timestamp_invalid', name: 'null', document: withFields({ timestamp: null }) },
  { code: 'timestamp_invalid', name: 'absent', document: withFields({ timestamp: undefined }) },
  { code: 'pcrs_malformed', name: 'an array', document: withFields({ pcrs: [pcr, pcr, pcr] }) },
  { code: 'pcrs_malformed', name: 'absent', document: withFields({ pcrs: undefined }) },
  { code: 'pcrs_count', name: 'none', document: withFields({ pcrs: new Map() }) },
  { code: 'pcrs_count', name: '33 entries', document: pcrsOf(upTo(33)) },
  { code: 'pcr_index_invalid', name: 'index 32', document: withPcrs([32, pcr]) },
  { code: 'pcr_index_invalid', name: 'index -1', document: withPcrs([-1, pcr]) },
  { code: 'pcr_index_invalid', name: 'a text index', document: withPcrs(['16', pcr]) },
  {
    code: 'pcr_index_invalid',
    name: 'a bytes index',
    document: withPcrs([Uint8Array.of(16), pcr]),
  },
  { code: 'pcr_index_invalid', name: 'an index beyond 2^53', document: withPcrs([2n ** 63n, pcr]) },
  { code: 'pcr_duplicate_index', name: 'PCR0 twice', document: withPcrs([0, pcr]) },
  { code: 'pcr_value_invalid', name: '47 bytes', document: withPcrs([16, pcr.subarray(1)]) },
  {
    code: 'pcr_value_invalid',
    name: '32 bytes (SHA-256)',
    document: withPcrs([16, new Uint8Array(32)]),
  },
  {
    code: 'pcr_value_invalid',
    name: '64 bytes (SHA-512)',
    document: withPcrs([16, new Uint8Array(64)]),
  },
  { code: 'pcr_value_invalid', name: 'null', document: withPcrs([16, null]) },
  { code: 'pcr_missing', name: 'no PCR0', document: pcrsOf([1, 2, 3]) },
  { code: 'pcr_missing', name: 'no PCR2', document: pcrsOf([0, 1, 3]) },
  {
    code: 'certificate_size',
    name: 'a genuine one that is too long',
    document: alsoExtended(4, LONG_EXTENSION),
  },
  {
    code: 'certificate_size',
    name: 'empty',
    document: withFields({ certificate: new Uint8Array() }),
  },
  { code: 'certificate_size', name: '1025 bytes', document: withFields({ certificate: tooLong }) },
  { code: 'certificate_size', name: 'absent', document: withFields({ certificate: undefined }) },
  { code: 'certificate_size', name: 'null', document: withFields({ certificate: null }) },
  {
    code: 'cabundle_malformed',
    name: 'bytes',
    document: withFields({ cabundle: standardChain.certificate }),
  },
  { code: 'cabundle_malformed', name: 'absent', document: withFields({ cabundle: undefined }) },
  { code: 'cabundle_count', name: 'empty', document: withFields({ cabundle: [] }) },
  {
    code: 'cabundle_count',
    name: '33 certificates',
    document: withFields({ cabundle: upTo(33).map(() => pcr) }),
  },
  {
    code: 'cabundle_certificate_size',
    name: 'a genuine one that is too long',
    document: alsoExtended(2, LONG_EXTENSION),
  },
  {
    code: 'cabundle_certificate_size',
    name: 'an empty one',
    document: withFields({ cabundle: [...standardChain.cabundle, new Uint8Array()] }),
  },
  {
    code: 'cabundle_certificate_size',
    name: 'one of 1025 bytes',
    document: withFields({ cabundle: [...standardChain.cabundle, tooLong] }),
  },
  {
    code: 'cabundle_certificate_size',
    name: 'text',
    document: withFields({ cabundle: ['certificate'] }),
  },
  {
    code: 'public_key_invalid',
    name: 'empty',
    document: withFields({ public_key: new Uint8Array() }),
  },
  { code: 'public_key_invalid', name: '1025 bytes', document: withFields({ public_key: tooLong }) },
  { code: 'public_key_invalid', name: 'text', document: withFields({ public_key: 'key' }) },
  { code: 'user_data_invalid', name: '1025 bytes', document: withFields({ user_data: tooLong }) },
  { code: 'user_data_invalid', name: 'a map', document: withFields({ user_data: new Map() }) },
  { code: 'user_data_invalid', name: 'false', document: withFields({ user_data: false }) },
  { code: 'nonce_invalid', name: '1025 bytes', document: withFields({ nonce: tooLong }) },
  { code: 'nonce_invalid', name: 'an integer', document: withFields({ nonce: 1 }) },
  {
    code: 'nitrotpm_document',
    name: 'a document of a NitroTPM',
    document: withFields({ pcrs: undefined, nitrotpm_pcrs: PCR_VALUES }),
  },
  {
    code: 'nitrotpm_document',
    name: 'both kinds of pcrs',
    document: withFields({ nitrotpm_pcrs: hex('a0') }),
  },
]
