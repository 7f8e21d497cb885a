import { encodeHex } from '../../attestation/bytes.ts'
import type { BundleFacts, BundleReport } from '../../attestation/evidence/bundle-report.ts'
import { nameRelease, releaseName } from '../../attestation/release/accepted-releases.ts'
import { printable } from './printable.ts'
import { hintAtRoot } from './root-hint.ts'
import { failedDetails, formatCheck } from './verify-report.ts'

/** Whether a report is good enough for an exit code of 0. `required` makes anything short of it fail. */
export function isAccepted({ verdict }: BundleReport, required: 'verified' | undefined): boolean {
  return required === undefined ? verdict !== 'invalid' : verdict === required
}

/** Gives the report of a bundle for people: each check, what is open, and what it comes to. */
export function printBundleText(report: BundleReport): string {
  const width = Math.max(...report.checks.map(({ name }) => name.length))
  const lines = report.checks.map((check) => formatCheck(check, width))
  const rest = [...describeFacts(report), conclude(report)].join('\n')
  return `evidence bundle\n${lines.join('')}\n${rest}\n${hintAtRoot(failedDetails(report.checks))}`
}

/** Gives the report of a bundle as one JSON object, for programs. Bytes are hex; times Unix seconds. */
export function printBundleJson(report: BundleReport, required: 'verified' | undefined): string {
  const { facts, verdict, checks, open, redacted } = report
  return `${JSON.stringify(
    {
      ok: isAccepted(report, required),
      conclusion: conclude(report),
      bundle: {
        verdict,
        checks,
        open,
        redacted,
        facts: facts && {
          ...facts,
          release: facts.release && releaseName(facts.release),
          configuration: encodeHex(facts.configuration),
          measurements: Object.fromEntries(
            [...facts.measurements].map(([index, pcr]) => [index, encodeHex(pcr)]),
          ),
        },
      },
    },
    null,
    2,
  )}\n`
}

function describeFacts({ facts, checks, redacted }: BundleReport): readonly string[] {
  if (facts === null) return []
  const { anchoredIn } = facts
  return [
    `completion     ${printable(facts.hash)}`,
    `leaf           ${facts.index} of the log of ${facts.notary}`,
    `provider       ${printable(facts.provider.name)} at ${printable(facts.provider.origin)}`,
    `model          ${describeModel(facts)}`,
    `outcome        ${facts.outcome}${facts.outcome === 'complete' ? '' : ': the answer was cut, and its end is not shown'}`,
    `finished       ${isoOf(facts.finishedAt)}, by the enclave's clock`,
    `not after      ${anchoredIn === null ? 'not shown: the block was not looked up' : `${isoOf(anchoredIn.timestamp)}, block ${anchoredIn.number} of the chain`}`,
    `code           ${describeCode(facts, checks)}`,
    `configuration  ${encodeHex(facts.configuration)}`,
    ...(redacted.length > 0 ? [`left out       ${redacted.join(' and ')}`] : []),
    '',
  ]
}

function describeModel({ model }: BundleFacts): string {
  const returned =
    model.returned === null ? 'the answer names none' : `answered by ${printable(model.returned)}`
  return `${printable(model.requested)}, ${returned}`
}

function describeCode({ release, measurements }: BundleFacts, checks: BundleReport['checks']): string {
  if (release !== null) return printable(nameRelease(release))
  const isExpected = checks.some(({ name, outcome }) => name === 'measurements' && outcome === 'passed')
  if (isExpected) return 'of the expected measurements'
  return `not known to be acceptable: PCR0 ${encodeHex(measurements.get(0) ?? new Uint8Array())}`
}

/** Says what it comes to, and no more than that. */
function conclude({ verdict, checks, open, facts }: BundleReport): string {
  switch (verdict) {
    case 'invalid': {
      const failed = checks.filter(({ outcome }) => outcome === 'failed').map(({ name }) => name)
      return `INVALID: failed at ${failed.join(', ')}. The bundle shows nothing.`
    }
    case 'consistent': {
      const cut =
        open.includes('outcome') && facts !== null
          ? ` The answer was cut (${facts.outcome}): say --allow-outcome ${facts.outcome} to take it as it is.`
          : ''
      return `CONSISTENT: nothing failed, but this was not checked: ${open.join(', ')}. What those show is not shown.${cut}`
    }
    case 'verified': {
      const rest = checks.filter(({ outcome }) => outcome === 'not checked').map(({ name }) => name)
      const left = rest.length === 0 ? '' : ` Not checked, and not shown: ${rest.join(', ')}.`
      return `VERIFIED: nothing failed, and everything that had to be checked was.${left}`
    }
  }
}

function isoOf(seconds: number): string {
  const time = new Date(seconds * 1000)
  return Number.isNaN(time.getTime()) ? `${seconds} s` : time.toISOString()
}
