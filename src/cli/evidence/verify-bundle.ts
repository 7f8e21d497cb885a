import { encodeHex } from '../../../attestation/bytes.ts'
import type { BundleFacts, BundleReport } from '../../../attestation/evidence/bundle-report.ts'
import { nameRelease, releaseName } from '../../../attestation/release/release-list.ts'
import type { BundleJudgement } from '../../../attestation/report/judge-bundle.ts'
import { isoOf, printable } from '../../../attestation/report/printable.ts'
import { describeErasure } from '../../../attestation/report/say-absence.ts'
import { type Check, failedDetails, formatChecks, hintAtRoot, printableJson } from '../printable.ts'
import { printExchange } from './kept-exchange.ts'

/**
 * Gives the report of a bundle for people: each check, what was asked and said, what is open, and
 * what it comes to.
 */
export function printBundleText(judged: BundleJudgement): string {
  const { report, comparison, exchange } = judged
  const checks: readonly Check[] = [...report.checks, ...comparison]
  const told = printExchange(exchange)
  const rest = [...describeFacts(report), conclude(judged)].join('\n')
  return `evidence bundle\n${formatChecks(checks)}\n${told === '' ? '' : `${told}\n`}${rest}\n${hintAtRoot(failedDetails(checks))}`
}

/**
 * Gives the report of a bundle as one JSON object, for programs. Bytes are hex; times Unix seconds.
 * `isOk`: it is good enough for the caller.
 */
export function printBundleJson(judged: BundleJudgement, isOk: boolean): string {
  const { verdict, report, comparison, exchange } = judged
  const { facts, checks, open, redacted, erased } = report
  return `${printableJson({
    ok: isOk,
    conclusion: conclude(judged),
    bundle: {
      verdict,
      exchange: { checks: comparison, ...exchange },
      checks,
      open,
      redacted,
      erased,
      facts: facts && {
        ...facts,
        release: facts.release && releaseName(facts.release),
        configuration: encodeHex(facts.configuration),
        measurements: Object.fromEntries(
          [...facts.measurements].map(([index, pcr]) => [index, encodeHex(pcr)]),
        ),
      },
    },
  })}\n`
}

function describeFacts({ facts, checks, redacted, erased }: BundleReport): readonly string[] {
  if (facts === null) return []
  const { anchoredIn } = facts
  return [
    `completion     ${printable(facts.hash)}`,
    `leaf           ${facts.index} of the log of ${facts.notary}`,
    `provider       ${printable(facts.provider.name)} at ${printable(facts.provider.origin)}`,
    `model          ${describeModel(facts)}`,
    `outcome        ${facts.outcome}${facts.outcome === 'complete' ? '' : ': the answer was cut, and its end is not shown'}`,
    `finished       ${isoOf(facts.finishedAt * 1000, `${facts.finishedAt} s`)}, by the enclave's clock`,
    `not after      ${anchoredIn === null ? 'not shown: the block was not looked up' : describeBlock(anchoredIn)}`,
    `code           ${describeCode(facts, checks)}`,
    `configuration  ${encodeHex(facts.configuration)}`,
    ...(redacted.length > 0 ? [`left out       ${redacted.join(' and ')}`] : []),
    ...(erased === null ? [] : [`erased         ${describeErasure(erased)}; the gateway's word`]),
    '',
  ]
}

function describeModel({ model }: BundleFacts): string {
  const returned =
    model.returned === null ? 'the answer names none' : `answered by ${printable(model.returned)}`
  return `${printable(model.requested)}, ${returned}`
}

function describeCode(
  { release, measurements }: BundleFacts,
  checks: BundleReport['checks'],
): string {
  if (release !== null) return printable(nameRelease(release))
  const isExpected = checks.some(
    ({ name, outcome }) => name === 'measurements' && outcome === 'passed',
  )
  if (isExpected) return 'of the expected measurements'
  return `not known to be acceptable: PCR0 ${encodeHex(measurements.get(0) ?? new Uint8Array())}`
}

/** Says what it comes to, and no more than that. */
function conclude({ report, differences }: BundleJudgement): string {
  const { verdict, checks, open, facts } = report
  if (verdict !== 'invalid' && differences.length > 0)
    return `INVALID: failed at ${differences.join(', ')}. The bundle is evidence of something else than what you gave.`
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

function describeBlock({ timestamp, number }: NonNullable<BundleFacts['anchoredIn']>): string {
  return `${isoOf(timestamp * 1000, `${timestamp} s`)}, block ${number} of the chain`
}
