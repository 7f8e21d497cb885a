import { encodeHex, equalBytes } from '../../bytes.ts'
import { type Established, established, type NotMade, waived } from '../provider-checks.ts'
import type { Pck } from './pck.ts'
import type { TdxBody } from './quote.ts'
import { tdxFault } from './tdx-codes.ts'
import type { BitRules, ResolvedTdxPolicy, TdxMeasurements } from './tdx-policy.ts'

// The checks in this file throw ProviderEvidenceError if they fail.

/** The FMSPC names a family of processors, their stepping and their kind of platform. */
export function checkFmspc(
  { fmspc }: Pick<Pck, 'fmspc'>,
  { fmspcs }: Pick<ResolvedTdxPolicy, 'fmspcs'>,
): Established<true> | NotMade {
  if (fmspcs === null) return waived('any kind of platform is accepted')
  if (!fmspcs.includes(fmspc))
    throw tdxFault('fmspc_not_accepted', `expected a platform of an accepted FMSPC, got ${fmspc}`)
  return established(true, fmspc)
}

/** If DEBUG (in byte 0) is set, the host can read the TD's memory. */
export function checkTdAttributes(
  { tdAttributes }: TdxBody,
  { tdAttributes: { required, allowed } }: ResolvedTdxPolicy,
): Established<true> {
  if (tdAttributes[0] !== 0) throw tdxFault('td_debug', 'expected a TD that cannot be debugged')
  const bits = bitsOf(tdAttributes)
  if ((bits & ~allowed) !== 0n)
    throw tdxFault('td_attributes_forbidden', `expected no TDATTRIBUTES outside ${hex(allowed)}`)
  if ((bits & required) !== required)
    throw tdxFault('td_attributes_missing', `expected TDATTRIBUTES with ${hex(required)}`)
  return established(true, `TDATTRIBUTES ${hex(bits)}`)
}

/** XFAM: the extended features that the TD may use. */
export function checkXfam(
  { xfam }: TdxBody,
  { xfam: { required, allowed } }: { readonly xfam: BitRules },
): Established<true> {
  const bits = bitsOf(xfam)
  if ((bits & ~allowed) !== 0n)
    throw tdxFault('xfam_forbidden', `expected no XFAM outside ${hex(allowed)}`)
  if ((bits & required) !== required)
    throw tdxFault('xfam_missing', `expected XFAM with ${hex(required)}`)
  return established(true, `XFAM ${hex(bits)}`)
}

/** A service TD could migrate the TD. TD 1.0 has no service TD. */
export function checkServiceTd({ mrServiceTd }: TdxBody): Established<true> {
  if (mrServiceTd?.some((byte) => byte !== 0))
    throw tdxFault('service_td', 'expected no service TD: MRSERVICETD of zeros')
  return established(true, mrServiceTd === null ? 'reports of TD 1.0 name none' : '')
}

/** Returns the index of the accepted set that the quote has. */
export function matchMeasurements(
  body: TdxBody,
  { measurements }: Pick<ResolvedTdxPolicy, 'measurements'>,
): Established<number> | NotMade {
  if (measurements === 'any') return waived('any code is accepted')
  const found = measurements.findIndex((set) => differencesFrom(body, set).length === 0)
  if (found < 0)
    throw tdxFault(
      'measurement_mismatch',
      `expected the measurements of ${nearestOf(body, measurements)}`,
    )
  return established(found, `set ${found}: ${Object.keys(measurements[found] ?? {}).join(', ')}`)
}

/** Describes, for messages, the accepted set with the fewest differences. */
export function nearestOf(body: TdxBody, sets: readonly TdxMeasurements[]): string {
  const [nearest] = sets
    .map((set, index) => ({ index, names: differencesFrom(body, set) }))
    .sort((one, other) => one.names.length - other.names.length)
  const names = nearest?.names.join(', ') ?? ''
  return `one of ${sets.length} sets: the nearest is set ${nearest?.index ?? 0}, but for ${names}`
}

/** Returns the names of the set's members that differ from the quote. */
export function differencesFrom(body: TdxBody, set: TdxMeasurements): readonly string[] {
  const [rtmr0, rtmr1, rtmr2, rtmr3] = body.rtmrs
  const { mrTd, mrSeam, mrConfigId, mrOwner, mrOwnerConfig } = body
  const measured: Readonly<Record<string, Uint8Array | undefined>> = {
    mrTd,
    rtmr0,
    rtmr1,
    rtmr2,
    rtmr3,
    mrSeam,
    mrConfigId,
    mrOwner,
    mrOwnerConfig,
  }
  return Object.entries(set).flatMap(([name, expected]) =>
    equalBytes(measured[name] ?? new Uint8Array(), expected) ? [] : [name],
  )
}

export function checkReportData(
  { reportData }: TdxBody,
  { reportData: expected }: Pick<ResolvedTdxPolicy, 'reportData'>,
): Established<true> | NotMade {
  if (expected === null) return waived('no report data was asked for')
  if (!equalBytes(reportData, expected))
    throw tdxFault('report_data_mismatch', 'expected the report data that was asked for')
  return established(true)
}

/** 64 bits, little-endian. */
function bitsOf(bytes: Uint8Array): bigint {
  return BigInt(`0x${encodeHex(Uint8Array.from(bytes).reverse())}`)
}

function hex(bits: bigint): string {
  return `0x${bits.toString(16)}`
}
