import { nameOf, validityOf } from '../nitro-builder/certificate-builder.ts'
import { buildChain, MADE_AT } from '../nitro-builder/development-pki.ts'
import {
  buildDocument,
  buildPayload,
  type Fields,
  PCR_VALUES,
  PROTECTED_HEADER,
  signDocument,
  standardChain,
} from '../nitro-builder/document-builder.ts'

import type { Acceptance, Refusal } from './case.ts'

const withFields = (fields: Fields) => buildDocument({ fields })
const after = (ms: number) => new Date(MADE_AT.getTime() + ms)
const madeAt = (ms: number) => withFields({ timestamp: MADE_AT.getTime() + ms })
const pcrAt = (index: number) => PCR_VALUES.get(index) ?? new Uint8Array()
const values = (...indexes: readonly number[]) =>
  new Map(indexes.map((index) => [index, pcrAt(index)]))
const changed = (index: number) =>
  new Map([[index, pcrAt(index).map((byte, i) => (i === 47 ? byte ^ 1 : byte))]])
const zeros = new Uint8Array(48)
const zeroPcrs = (...indexes: readonly number[]) =>
  withFields({ pcrs: new Map([...PCR_VALUES, ...indexes.map((index) => [index, zeros] as const)]) })
const expecting = (...sets: readonly ReadonlyMap<number, Uint8Array>[]) => ({ measurements: sets })
const nonce = Buffer.from('a nonce')

const HOUR_MS = 3_600_000

const payload = buildPayload()
const signature = signDocument(standardChain, { header: PROTECTED_HEADER, payload })
const order = Buffer.from(
  'ffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973',
  'hex',
)
const longLeaf = buildChain({
  level: 4,
  parts: { validity: validityOf(MADE_AT, after(9 * HOUR_MS)) },
})
const [r, s] = [signature.subarray(0, 48), signature.subarray(48)]
const toBytes = (value: bigint) => Buffer.from(value.toString(16).padStart(96, '0'), 'hex')
const twin = toBytes(
  BigInt(`0x${order.toString('hex')}`) - BigInt(`0x${Buffer.from(s).toString('hex')}`),
)
const signedWith = (...scalars: readonly Uint8Array[]) =>
  buildDocument({ payload, signature: Buffer.concat(scalars) })
const flipped = (bytes: Uint8Array, index: number) =>
  bytes.map((byte, i) => (i === index ? byte ^ 1 : byte))

/** Rules 20 to 25. */
export const policyAcceptances: readonly Acceptance[] = [
  { rule: 20, name: 'a signature', document: signedWith(r, s) },
  {
    rule: 20,
    name: 'its twin with n - s, so a document is no unique key',
    document: signedWith(r, twin),
  },
  {
    rule: 21,
    name: 'an age of exactly the maximum',
    document: buildDocument(),
    policy: { maxAgeMs: 60_000 },
    at: after(60_000),
  },
  {
    rule: 21,
    name: 'a future of exactly the skew',
    document: buildDocument(),
    policy: { futureSkewMs: 5000 },
    at: after(-5000),
  },
  { rule: 21, name: 'milliseconds that the time given lacks', document: madeAt(999), at: MADE_AT },
  { rule: 21, name: 'the first second of the leaf', document: madeAt(-HOUR_MS), at: MADE_AT },
  {
    rule: 21,
    name: 'three hours and a minute, by default',
    document: buildDocument({ chain: longLeaf }),
    at: after(3 * HOUR_MS + 60_000),
  },
  {
    rule: 21,
    name: 'the last second of the leaf',
    document: madeAt(2 * HOUR_MS),
    at: after(2 * HOUR_MS),
  },
  { rule: 22, name: 'the nonce', document: buildDocument(), policy: { nonce } },
  {
    rule: 22,
    name: 'an empty nonce',
    document: withFields({ nonce: new Uint8Array() }),
    policy: { nonce: new Uint8Array() },
  },
  { rule: 22, name: 'any nonce when none is asked for', document: buildDocument() },
  {
    rule: 23,
    name: 'debug mode, when allowed',
    document: zeroPcrs(0, 1, 2),
    policy: { allowDebug: true },
  },
  { rule: 23, name: 'PCR0 to 2 that are not all zero', document: zeroPcrs(0, 2) },
  { rule: 23, name: 'other PCRs that are zero', document: zeroPcrs(3, 5, 6, 7, 8) },
  { rule: 24, name: 'one measurement', document: buildDocument(), policy: expecting(values(0)) },
  { rule: 24, name: 'all measurements', document: buildDocument(), policy: expecting(PCR_VALUES) },
  {
    rule: 24,
    name: 'the second of two sets',
    document: buildDocument(),
    policy: expecting(changed(0), values(0, 1, 2)),
  },
  {
    rule: 24,
    name: 'any measurement, said out loud',
    document: buildDocument(),
    policy: { measurements: 'any' },
  },
  { rule: 25, name: 'bindings that hold', document: buildDocument() },
  {
    rule: 25,
    name: 'another PCR4',
    document: withFields({ pcrs: new Map([...PCR_VALUES, [4, pcrAt(5)]]) }),
  },
  { rule: 25, name: 'no PCR4', document: withFields({ pcrs: values(0, 1, 2) }) },
  {
    rule: 25,
    name: 'a leaf of another name',
    document: buildDocument({
      chain: buildChain({ level: 4, parts: { subject: nameOf('someone else') } }),
    }),
  },
]

export const policyRefusals: readonly Refusal[] = [
  {
    code: 'signature_invalid',
    name: 'another payload',
    document: buildDocument({ payload: buildPayload({ fields: { nonce: null } }), signature }),
  },
  {
    code: 'signature_invalid',
    name: 'one bit of r flipped',
    document: signedWith(flipped(r, 47), s),
  },
  {
    code: 'signature_invalid',
    name: 'one bit of s flipped',
    document: signedWith(r, flipped(s, 47)),
  },
  { code: 'signature_invalid', name: 'r and s exchanged', document: signedWith(s, r) },
  {
    code: 'signature_invalid',
    name: 'a signature over another header',
    document: buildDocument({
      signature: signDocument(standardChain, { header: new Uint8Array(), payload }),
    }),
  },
  {
    code: 'signature_invalid',
    name: 'a re-encoding of the signed payload',
    document: buildDocument({ payload: buildPayload({ indefinite: true }), signature }),
  },
  {
    code: 'signature_out_of_range',
    name: 'r of zero',
    document: signedWith(new Uint8Array(48), s),
  },
  {
    code: 'signature_out_of_range',
    name: 's of zero',
    document: signedWith(r, new Uint8Array(48)),
  },
  { code: 'signature_out_of_range', name: 'r of n', document: signedWith(order, s) },
  { code: 'signature_out_of_range', name: 's of n', document: signedWith(r, order) },
  {
    code: 'signature_out_of_range',
    name: 'all ones',
    document: signedWith(new Uint8Array(96).fill(0xff)),
  },
  { code: 'timestamp_outside_leaf', name: 'before the leaf', document: madeAt(-HOUR_MS - 1) },
  { code: 'timestamp_outside_leaf', name: 'after the leaf', document: madeAt(2 * HOUR_MS + 1) },
  {
    code: 'timestamp_outside_leaf',
    name: 'seconds for milliseconds',
    document: withFields({ timestamp: MADE_AT.getTime() / 1000 }),
  },
  {
    code: 'timestamp_outside_leaf',
    name: 'the largest timestamp',
    document: withFields({ timestamp: 2n ** 64n - 1n }),
  },
  {
    code: 'document_too_old',
    name: 'a millisecond over the maximum',
    document: buildDocument(),
    policy: { maxAgeMs: 60_000 },
    at: after(60_001),
  },
  {
    code: 'document_too_old',
    name: 'four hours, by default',
    document: buildDocument({ chain: longLeaf }),
    at: after(4 * HOUR_MS),
  },
  {
    code: 'document_too_old',
    name: 'a millisecond over three hours and a minute, by default',
    document: buildDocument({ chain: longLeaf }),
    at: after(3 * HOUR_MS + 60_001),
  },
  {
    code: 'document_from_future',
    name: 'a millisecond over the skew',
    document: buildDocument(),
    policy: { futureSkewMs: 5000 },
    at: after(-5001),
  },
  { code: 'document_from_future', name: 'two minutes, by default', document: madeAt(120_000) },
  {
    code: 'certificate_expired',
    name: 'a far timestamp in historical mode',
    document: withFields({ timestamp: 2n ** 64n - 1n }),
    policy: { mode: 'historical' },
  },
  { code: 'nonce_missing', name: 'null', document: withFields({ nonce: null }), policy: { nonce } },
  {
    code: 'nonce_missing',
    name: 'absent',
    document: withFields({ nonce: undefined }),
    policy: { nonce },
  },
  {
    code: 'nonce_missing',
    name: 'null, when an empty one is expected',
    document: withFields({ nonce: null }),
    policy: { nonce: new Uint8Array() },
  },
  {
    code: 'nonce_mismatch',
    name: 'empty',
    document: withFields({ nonce: new Uint8Array() }),
    policy: { nonce },
  },
  {
    code: 'nonce_mismatch',
    name: 'one bit',
    document: withFields({ nonce: flipped(nonce, 0) }),
    policy: { nonce },
  },
  {
    code: 'nonce_mismatch',
    name: 'a prefix',
    document: withFields({ nonce: nonce.subarray(1) }),
    policy: { nonce },
  },
  { code: 'debug_mode', name: 'PCR0 to 2 all zero', document: zeroPcrs(0, 1, 2) },
  {
    code: 'debug_mode',
    name: 'with a measurement of PCR4',
    document: zeroPcrs(0, 1, 2),
    policy: expecting(values(4)),
  },
  {
    code: 'measurement_zero',
    name: 'zeros expected in debug mode',
    document: zeroPcrs(0, 1, 2),
    policy: { allowDebug: true, ...expecting(new Map([[0, zeros]])) },
  },
  {
    code: 'measurement_zero',
    name: 'zeros expected of a PCR that is zero',
    document: zeroPcrs(8),
    policy: expecting(new Map([...values(0), [8, zeros]])),
  },
  {
    code: 'measurements_not_given',
    name: 'no sets',
    document: buildDocument(),
    policy: expecting(),
  },
  {
    code: 'measurement_missing',
    name: 'a PCR that is not there',
    document: buildDocument(),
    policy: expecting(new Map([[16, pcrAt(0)]])),
  },
  {
    code: 'measurement_mismatch',
    name: 'one bit of PCR0',
    document: buildDocument(),
    policy: expecting(changed(0)),
  },
  {
    code: 'measurement_mismatch',
    name: 'one of two values',
    document: buildDocument(),
    policy: expecting(new Map([...values(0), ...changed(2)])),
  },
  {
    code: 'measurement_mismatch',
    name: 'the value of another PCR',
    document: buildDocument(),
    policy: expecting(new Map([[0, pcrAt(1)]])),
  },
  {
    code: 'measurement_mismatch',
    name: 'each of two sets in part',
    document: buildDocument(),
    policy: expecting(
      new Map([...values(0), ...changed(1)]),
      new Map([...changed(0), ...values(1)]),
    ),
  },
]
