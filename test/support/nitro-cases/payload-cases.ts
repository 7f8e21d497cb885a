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
import { acceptancesOf, refusalsOf } from './case.ts'
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
export const payloadAcceptances = acceptancesOf({
  7: {
    'a definite map': buildDocument(),
    'an indefinite map': buildDocument({ indefinite: true }),
    'an unknown key': withFields({ something_new: [1, 'two'] }),
    'the unknown keys __proto__ and constructor': withPairs(['__proto__', 1], ['constructor', 2]),
  },
  8: { 'a module_id of another form': withFields({ module_id: 'x' }) },
  9: {
    'PCR0 to 2 alone': pcrsOf([0, 1, 2]),
    'sparse PCRs': pcrsOf([0, 1, 2, 8, 31]),
    'PCRs in another order': pcrsOf([31, 2, 1, 0]),
    '32 PCRs': pcrsOf(upTo(32)),
  },
  10: { 'certificates of ordinary size': buildDocument() },
  11: {
    'all three null': withFields({ public_key: null, user_data: null, nonce: null }),
    'all three absent': withFields({
      public_key: undefined,
      user_data: undefined,
      nonce: undefined,
    }),
    'all three of 1024 bytes': withFields({
      public_key: kilobyte,
      user_data: kilobyte,
      nonce: kilobyte,
    }),
    'empty user_data and nonce': withFields({
      user_data: new Uint8Array(),
      nonce: new Uint8Array(),
    }),
  },
  12: { 'no nitrotpm_pcrs': buildDocument() },
})

export const payloadRefusals = refusalsOf({
  payload_not_map: {
    'an array': buildDocument({ payload: encodeCbor([]) }),
    'an integer': buildDocument({ payload: Uint8Array.of(0) }),
  },
  payload_key_type: {
    'an integer key': withPairs([1, 1]),
    'a bytes key': withPairs([Uint8Array.of(1), 1]),
  },
  payload_duplicate_key: {
    'user_data twice': withPairs(['user_data', Uint8Array.of(1)]),
    'an unknown key twice': withPairs(['new', 1], ['new', 1]),
    'nonce twice, with the same value': withPairs(['nonce', Buffer.from('a nonce')]),
  },
  payload_trailing_bytes: {
    'a byte after the map': buildDocument({
      payload: Buffer.concat([buildPayload(), Buffer.of(0xf6)]),
    }),
    'a byte after the break': buildDocument({
      payload: Buffer.concat([buildPayload({ indefinite: true }), Buffer.of(0xff)]),
    }),
  },
  module_id_invalid: {
    empty: withFields({ module_id: '' }),
    absent: withFields({ module_id: undefined }),
    bytes: withFields({ module_id: Buffer.from('i-1') }),
  },
  digest_invalid: {
    SHA256: withFields({ digest: 'SHA256' }),
    'lower case': withFields({ digest: 'sha384' }),
    absent: withFields({ digest: undefined }),
  },
  timestamp_invalid: {
    zero: withFields({ timestamp: 0 }),
    negative: withFields({ timestamp: -1 }),
    text: withFields({ timestamp: '1772600767000' }),
    null: withFields({ timestamp: null }),
    absent: withFields({ timestamp: undefined }),
  },
  pcrs_malformed: {
    'an array': withFields({ pcrs: [pcr, pcr, pcr] }),
    absent: withFields({ pcrs: undefined }),
  },
  pcrs_count: {
    none: withFields({ pcrs: new Map() }),
    '33 entries': pcrsOf(upTo(33)),
  },
  pcr_index_invalid: {
    'index 32': withPcrs([32, pcr]),
    'index -1': withPcrs([-1, pcr]),
    'a text index': withPcrs(['16', pcr]),
    'a bytes index': withPcrs([Uint8Array.of(16), pcr]),
    'an index beyond 2^53': withPcrs([2n ** 63n, pcr]),
  },
  pcr_duplicate_index: { 'PCR0 twice': withPcrs([0, pcr]) },
  pcr_value_invalid: {
    '47 bytes': withPcrs([16, pcr.subarray(1)]),
    '32 bytes (SHA-256)': withPcrs([16, new Uint8Array(32)]),
    '64 bytes (SHA-512)': withPcrs([16, new Uint8Array(64)]),
    null: withPcrs([16, null]),
  },
  pcr_missing: {
    'no PCR0': pcrsOf([1, 2, 3]),
    'no PCR2': pcrsOf([0, 1, 3]),
  },
  certificate_size: {
    'a genuine one that is too long': alsoExtended(4, LONG_EXTENSION),
    empty: withFields({ certificate: new Uint8Array() }),
    '1025 bytes': withFields({ certificate: tooLong }),
    absent: withFields({ certificate: undefined }),
    null: withFields({ certificate: null }),
  },
  cabundle_malformed: {
    bytes: withFields({ cabundle: standardChain.certificate }),
    absent: withFields({ cabundle: undefined }),
  },
  cabundle_count: {
    empty: withFields({ cabundle: [] }),
    '33 certificates': withFields({ cabundle: upTo(33).map(() => pcr) }),
  },
  cabundle_certificate_size: {
    'a genuine one that is too long': alsoExtended(2, LONG_EXTENSION),
    'an empty one': withFields({ cabundle: [...standardChain.cabundle, new Uint8Array()] }),
    'one of 1025 bytes': withFields({ cabundle: [...standardChain.cabundle, tooLong] }),
    text: withFields({ cabundle: ['certificate'] }),
  },
  public_key_invalid: {
    empty: withFields({ public_key: new Uint8Array() }),
    '1025 bytes': withFields({ public_key: tooLong }),
    text: withFields({ public_key: 'key' }),
  },
  user_data_invalid: {
    '1025 bytes': withFields({ user_data: tooLong }),
    'a map': withFields({ user_data: new Map() }),
    false: withFields({ user_data: false }),
  },
  nonce_invalid: {
    '1025 bytes': withFields({ nonce: tooLong }),
    'an integer': withFields({ nonce: 1 }),
  },
  nitrotpm_document: {
    'a document of a NitroTPM': withFields({ pcrs: undefined, nitrotpm_pcrs: PCR_VALUES }),
    'both kinds of pcrs': withFields({ nitrotpm_pcrs: hex('a0') }),
  },
})
