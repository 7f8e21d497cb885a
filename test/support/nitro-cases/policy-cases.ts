import { nearly } from '../case-table.ts'
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
import { acceptancesOf, type Refusal, refusalsOf, under } from './case.ts'

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
export const policyAcceptances = acceptancesOf({
  20: {
    'a signature': signedWith(r, s),
    'its twin with n - s, so a document is no unique key': signedWith(r, twin),
  },
  21: {
    'an age of exactly the maximum': under({ maxAgeMs: 60_000 }, { at: after(60_000) }),
    'a future of exactly the skew': under({ futureSkewMs: 5000 }, { at: after(-5000) }),
    'milliseconds that the time given lacks': { document: madeAt(999), at: MADE_AT },
    'the first second of the leaf': { document: madeAt(-HOUR_MS), at: MADE_AT },
    'three hours and a minute, by default': {
      document: buildDocument({ chain: longLeaf }),
      at: after(3 * HOUR_MS + 60_000),
    },
    'the last second of the leaf': { document: madeAt(2 * HOUR_MS), at: after(2 * HOUR_MS) },
  },
  22: {
    'the nonce': under({ nonce }),
    'an empty nonce': {
      document: withFields({ nonce: new Uint8Array() }),
      policy: { nonce: new Uint8Array() },
    },
    'any nonce when none is asked for': buildDocument(),
  },
  23: {
    'debug mode, when allowed': { document: zeroPcrs(0, 1, 2), policy: { allowDebug: true } },
    'PCR0 to 2 that are not all zero': zeroPcrs(0, 2),
    'other PCRs that are zero': zeroPcrs(3, 5, 6, 7, 8),
  },
  24: {
    'one measurement': under(expecting(values(0))),
    'all measurements': under(expecting(PCR_VALUES)),
    'the second of two sets': under(expecting(changed(0), values(0, 1, 2))),
    'any measurement, said out loud': under({ measurements: 'any' }),
  },
  25: {
    'bindings that hold': buildDocument(),
    'another PCR4': withFields({ pcrs: new Map([...PCR_VALUES, [4, pcrAt(5)]]) }),
    'no PCR4': withFields({ pcrs: values(0, 1, 2) }),
    'a leaf of another name': buildDocument({
      chain: buildChain({ level: 4, parts: { subject: nameOf('someone else') } }),
    }),
  },
})

export const policyRefusals: readonly Refusal[] = refusalsOf({
  signature_invalid: {
    'another payload': buildDocument({
      payload: buildPayload({ fields: { nonce: null } }),
      signature,
    }),
    'one bit of r flipped': signedWith(flipped(r, 47), s),
    'one bit of s flipped': signedWith(r, flipped(s, 47)),
    'r and s exchanged': signedWith(s, r),
    'a signature over another header': buildDocument({
      signature: signDocument(standardChain, { header: new Uint8Array(), payload }),
    }),
    'a re-encoding of the signed payload': buildDocument({
      payload: buildPayload({ indefinite: true }),
      signature,
    }),
  },
  signature_out_of_range: {
    'r of zero': signedWith(new Uint8Array(48), s),
    's of zero': signedWith(r, new Uint8Array(48)),
    'r of n': signedWith(order, s),
    's of n': signedWith(r, order),
    'all ones': signedWith(new Uint8Array(96).fill(0xff)),
  },
  timestamp_outside_leaf: {
    'before the leaf': madeAt(-HOUR_MS - 1),
    'after the leaf': madeAt(2 * HOUR_MS + 1),
    'seconds for milliseconds': withFields({ timestamp: MADE_AT.getTime() / 1000 }),
    'the largest timestamp': withFields({ timestamp: 2n ** 64n - 1n }),
  },
  document_too_old: {
    'a millisecond over the maximum': under({ maxAgeMs: 60_000 }, { at: after(60_001) }),
    'four hours, by default': {
      document: buildDocument({ chain: longLeaf }),
      at: after(4 * HOUR_MS),
    },
    'a millisecond over three hours and a minute, by default': {
      document: buildDocument({ chain: longLeaf }),
      at: after(3 * HOUR_MS + 60_001),
    },
  },
  document_from_future: {
    'a millisecond over the skew': under({ futureSkewMs: 5000 }, { at: after(-5001) }),
    'two minutes, by default': madeAt(120_000),
  },
  certificate_expired: {
    'a far timestamp in historical mode': {
      document: withFields({ timestamp: 2n ** 64n - 1n }),
      policy: { mode: 'historical' },
    },
  },
  nonce_missing: {
    null: { document: withFields({ nonce: null }), policy: { nonce } },
    absent: { document: withFields({ nonce: undefined }), policy: { nonce } },
    'null, when an empty one is expected': {
      document: withFields({ nonce: null }),
      policy: { nonce: new Uint8Array() },
    },
  },
  nonce_mismatch: {
    empty: { document: withFields({ nonce: new Uint8Array() }), policy: { nonce } },
    'the first bit': { document: withFields({ nonce: flipped(nonce, 0) }), policy: { nonce } },
    'the last bit': { document: withFields({ nonce: nearly(nonce) }), policy: { nonce } },
    'a prefix': { document: withFields({ nonce: nonce.subarray(1) }), policy: { nonce } },
  },
  debug_mode: {
    'PCR0 to 2 all zero': zeroPcrs(0, 1, 2),
    'with a measurement of PCR4': { document: zeroPcrs(0, 1, 2), policy: expecting(values(4)) },
  },
  measurement_zero: {
    'zeros expected in debug mode': {
      document: zeroPcrs(0, 1, 2),
      policy: { allowDebug: true, ...expecting(new Map([[0, zeros]])) },
    },
    'zeros expected of a PCR that is zero': {
      document: zeroPcrs(8),
      policy: expecting(new Map([...values(0), [8, zeros]])),
    },
  },
  measurements_not_given: { 'no sets': under(expecting()) },
  measurement_missing: {
    'a PCR that is not there': under(expecting(new Map([[16, pcrAt(0)]]))),
  },
  measurement_mismatch: {
    'one bit of PCR0': under(expecting(changed(0))),
    'one of two values': under(expecting(new Map([...values(0), ...changed(2)]))),
    'the value of another PCR': under(expecting(new Map([[0, pcrAt(1)]]))),
    'each of two sets in part': under(
      expecting(new Map([...values(0), ...changed(1)]), new Map([...changed(0), ...values(1)])),
    ),
  },
})
