import { printable } from '#attestation/report/printable.ts'
import { describeSession, sayRelation } from '#attestation/report/shown-session.ts'
import type { SessionReport } from '#attestation/session/verify-session.ts'
import { formatChecks } from '../printable.ts'
import { printMessage } from './kept-exchange.ts'

export function printSession(report: SessionReport): readonly string[] {
  const { calls, stepsLeftOut } = describeSession(report)
  const lines = calls.map(({ headline, relation }, at) => {
    const about = relation === null ? '' : ` It ${relation}.`
    return `  call ${String(at).padEnd(4)} ${printable(headline)}${about}\n`
  })
  const timeline = calls.flatMap(({ steps }, at) =>
    steps.length === 0 ? [] : [`call ${at}\n`, ...steps.map(printMessage)],
  )
  const isOne = report.checks.some((one) => one.name === 'one session' && one.outcome === 'passed')
  const stated = isOne ? '' : ', as the file states'
  const more = stepsLeftOut === 0 ? '' : `… and ${stepsLeftOut} steps more\n`
  return [
    lines.length === 0 ? '' : `calls of session ${report.id}${stated}\n${lines.join('')}`,
    timeline.length === 0 ? '' : `timeline\n${timeline.join('')}${more}`,
    `checks of the session\n${formatChecks(report.checks)}`,
  ]
}

export function sessionReportJson(report: SessionReport): object {
  const { calls } = describeSession(report)
  return {
    id: report.id,
    checks: report.checks,
    open: report.open,
    calls: calls.map(({ hash, verdict, headline }, at) => {
      const { relation, report: of } = report.calls[at] ?? {}
      return {
        hash,
        verdict,
        conclusion: headline,
        open: of?.open,
        failed: of?.checks.filter(({ outcome }) => outcome === 'failed'),
        notary: of?.facts?.notary ?? null,
        outcome: of?.facts?.outcome ?? null,
        relation: relation && { ...relation, sentence: sayRelation(relation) },
      }
    }),
    timeline: report.timeline,
  }
}
