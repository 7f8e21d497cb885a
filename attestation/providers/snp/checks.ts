import { encodeHex, equalBytes } from '../../bytes.ts'
import { type Established, established, type NotMade, waived } from '../provider-checks.ts'
import type { SnpChain } from './chain.ts'
import type { ResolvedSnpPolicy } from './policy.ts'
import { type FirmwareVersion, isZero, PLATFORM_BITS, type SnpReport } from './report.ts'
import { refuseReport } from './snp-rules.ts'
import { decodeTcb, findBelow, productOfCpu, type SnpProduct, type TcbVersion } from './tcb.ts'
import { hardwareIdOfVek, productOfVek, providerOfVek, tcbOfVek } from './vek-claims.ts'

// The checks in this file throw ProviderEvidenceError if they fail. rules.md lists the rules.

export type SnpTcbs = Readonly<Record<keyof SnpReport['tcb'], TcbVersion>>

/** Rule 13. Reports of version 2 do not name their processor. */
export function checkProduct(
  { cpu, signer }: SnpReport,
  { vek, rootProduct }: SnpChain,
): Established<{ readonly product: SnpProduct; readonly provider: string | null }> {
  const products = [productOfVek(vek.opaque), ...(cpu === null ? [] : [productOfCpu(cpu)])]
  if (products.some((product) => product !== rootProduct))
    throw refuseReport(
      'product_mismatch',
      `expected certificate and report of ${rootProduct}, got ${products.join(' and ')}`,
    )
  const provider = providerOfVek(vek.opaque)
  if ((provider !== null) !== (signer === 'VLEK'))
    throw refuseReport('provider_extension', 'expected a CSP_ID in a VLEK, and in no VCEK')
  const source = cpu === null ? ', by its certificate alone' : ''
  return established({ product: rootProduct, provider }, `${rootProduct}${source}`)
}

/** Rule 14: the certificate is for exactly the reported TCB. */
export function checkTcb(
  { tcb }: SnpReport,
  { vek, rootProduct: product }: SnpChain,
): Established<SnpTcbs> {
  const tcbs = {
    current: decodeTcb(tcb.current, product),
    reported: decodeTcb(tcb.reported, product),
    committed: decodeTcb(tcb.committed, product),
    launch: decodeTcb(tcb.launch, product),
  }
  const certified = tcbOfVek(vek.opaque, product)
  const odd = findBelow(tcbs.reported, certified) ?? findBelow(certified, tcbs.reported)
  if (odd)
    throw refuseReport(
      'tcb_mismatch',
      `expected a reported TCB of ${odd} ${certified[odd]}, as certified, got ${tcbs.reported[odd]}`,
    )
  return established(tcbs, `reported ${describeTcb(tcbs.reported)}`)
}

/** Rule 15. Waived for a VLEK, which no chip owns, and for a masked chip id (all zeros). */
export function checkChip(
  { chipId, signer }: SnpReport,
  { vek, rootProduct }: SnpChain,
): Established<Uint8Array> | NotMade {
  const hardwareId = hardwareIdOfVek(vek.opaque, rootProduct)
  if ((hardwareId === null) !== (signer === 'VLEK'))
    throw refuseReport('chip_extension', 'expected a hardware id in a VCEK, and in no VLEK')
  if (hardwareId === null) return waived('a VLEK is for a provider, not for a chip')
  if (isZero(chipId)) return waived("the report's chip id is masked")
  const { length } = hardwareId
  if (!equalBytes(chipId.subarray(0, length), hardwareId) || !isZero(chipId.subarray(length)))
    throw refuseReport('chip_mismatch', "expected the certificate's hardware id")
  return established(hardwareId, `chip ${encodeHex(hardwareId)}`)
}

/** Rule 16 of rules.md. */
export function checkGuestPolicy({
  policy,
  migrationAgentReportId: agent,
}: SnpReport): Established<true> {
  if (policy.debug)
    throw refuseReport('debug_allowed', 'expected a guest whose memory the host cannot read')
  if (policy.migration)
    throw refuseReport('migration_allowed', 'expected a guest without migration agent')
  if (!isZero(agent) && agent.some((byte) => byte !== 0xff))
    throw refuseReport('migration_agent', 'expected no report id of a migration agent')
  return established(true)
}

/** Rule 17: the privilege level that requested the report. */
export function checkVmpl({ vmpl }: SnpReport, { vmpl: expected }: ResolvedSnpPolicy) {
  if (vmpl === expected) return established(true, `VMPL ${vmpl}`)
  throw refuseReport('vmpl_unexpected', `expected a report for VMPL ${expected}, got ${vmpl}`)
}

/** Rule 18 of rules.md. */
export function checkFloors(
  { tcbs, product }: { readonly tcbs: SnpTcbs; readonly product: SnpProduct },
  { floors }: ResolvedSnpPolicy,
): Established<true> | NotMade {
  if (floors === null) return waived('the policy has no floors')
  const floor = floors[product]
  if (floor === undefined)
    throw refuseReport('tcb_floor_missing', `expected a product with a floor, got ${product}`)
  for (const name of ['reported', 'committed', 'launch'] as const) {
    const below = findBelow(tcbs[name], floor)
    if (below !== null)
      throw refuseReport(
        'tcb_below_floor',
        `expected ${below} of the ${name} TCB to be ${floor[below]} or more, got ${tcbs[name][below]}`,
      )
  }
  return established(true, `at least ${describeTcb(floor)}`)
}

/** Rule 19. Returns the index in the list of the policy. */
export function matchMeasurement(
  { measurement }: SnpReport,
  { measurements }: ResolvedSnpPolicy,
): Established<number> | NotMade {
  if (measurements === null) return waived('any measurement is accepted')
  const index = measurements.findIndex((one) => equalBytes(one, measurement))
  if (index < 0)
    throw refuseReport('measurement_mismatch', 'expected a measurement that is accepted')
  return established(index, encodeHex(measurement))
}

/** Rule 20. The host sets HOST_DATA at launch. */
export function matchHostData(
  { hostData }: SnpReport,
  { hostData: accepted }: ResolvedSnpPolicy,
): Established<true> | NotMade {
  if (accepted === null) return waived('any host data is accepted')
  if (!accepted.some((one) => equalBytes(one, hostData)))
    throw refuseReport('host_data_mismatch', 'expected host data that is accepted')
  return established(true, encodeHex(hostData))
}

/** Rule 21. The guest chooses REPORT_DATA. */
export function matchReportData(
  { reportData }: SnpReport,
  { reportData: expected }: ResolvedSnpPolicy,
): Established<true> | NotMade {
  if (expected === null) return waived('no report data was asked for')
  if (!equalBytes(expected, reportData))
    throw refuseReport('report_data_mismatch', 'expected the report data that was asked for')
  return established(true)
}

/** The host can go back from provisional firmware to the committed firmware. */
export function isProvisional({ tcb, currentFirmware, committedFirmware }: SnpReport): boolean {
  return (
    !equalBytes(tcb.current, tcb.committed) || !isSameFirmware(currentFirmware, committedFirmware)
  )
}

function isSameFirmware(one: FirmwareVersion, other: FirmwareVersion): boolean {
  return one.major === other.major && one.minor === other.minor && one.build === other.build
}

/** Rule 22. */
export function checkCommitted(
  report: SnpReport,
  { needsCommitted }: ResolvedSnpPolicy,
): Established<true> | NotMade {
  if (!needsCommitted) return waived('provisional firmware is accepted')
  if (isProvisional(report))
    throw refuseReport('firmware_provisional', 'expected firmware that the host has committed')
  return established(true)
}

/** Rule 23. */
export function checkPlatformInfo(
  { platform }: SnpReport,
  { platform: expected }: ResolvedSnpPolicy,
): Established<true> | NotMade {
  if (expected === null) return waived('any state of the platform is accepted')
  const odd = PLATFORM_BITS.find((bit) => expected[bit] === !platform[bit])
  if (odd !== undefined)
    throw refuseReport(
      'platform_info_not_accepted',
      `expected PLATFORM_INFO with ${odd} ${expected[odd]}`,
    )
  return established(true, Object.keys(expected).join(', '))
}

/** Rule 24. The firmware states the chip id, also in a report by a VLEK. */
export function matchChip(
  { chipId }: SnpReport,
  { chipIds }: ResolvedSnpPolicy,
): Established<true> | NotMade {
  if (chipIds === null) return waived('any chip is accepted')
  if (!chipIds.some((one) => equalBytes(one, chipId)))
    throw refuseReport('chip_not_accepted', 'expected the id of an accepted chip')
  return established(true, encodeHex(chipId))
}

function describeTcb(tcb: TcbVersion): string {
  return Object.entries(tcb)
    .map(([part, version]) => `${part} ${version}`)
    .join(', ')
}
