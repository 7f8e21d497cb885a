import { z } from 'zod'
import type { ConformanceCase, Verdict } from './manifest.ts'

/** The end of a program, and its output. */
export type Run = {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
  /** Why the driver ended it; null when it ended by itself. */
  readonly endedFor: string | null
}

/** A program's findings for one case. */
type Found = {
  readonly verdict: Verdict
  readonly failed: readonly string[]
  readonly notChecked: readonly string[]
}

/** What is compared: the whole report, or only verdict and exit code. */
export type Strictness = 'report' | 'verdict'

/** The result of one case. */
export type Result = {
  readonly case: ConformanceCase
  /** The findings, in words. */
  readonly got: string
  /** The differences from the expected result; empty when the program conforms. */
  readonly differences: readonly string[]
}

const Verdicts = z.enum(['verified', 'incomplete', 'not_accepted', 'invalid'])
const Checks = z.array(
  z.object({ name: z.string(), outcome: z.enum(['passed', 'failed', 'not checked']) }),
)
const BundleReport = z.object({
  bundle: z.object({
    verdict: Verdicts,
    checks: Checks,
    exchange: z.object({ checks: Checks }).optional(),
  }),
})
const RecordsReport = z.object({
  verdict: Verdicts,
  records: z.array(z.object({ checks: Checks })).min(1),
})
const DocumentReport = z.object({ valid: z.boolean(), code: z.string().nullable() })

/** Compares the end of a program with the expectation of the case. */
export function judgeRun(one: ConformanceCase, run: Run, strictness: Strictness): Result {
  const give = (got: string, differences: readonly string[]): Result => ({
    case: one,
    got,
    differences,
  })
  if (run.endedFor !== null) return give(run.endedFor, [run.endedFor])
  const found = readReport(one, run.stdout)
  const { verdict, failed, not_checked: notChecked } = one.expect
  const code = { verified: 0, incomplete: 3, not_accepted: 1, invalid: 1 }[verdict]
  if (found === null) {
    const got = `no report, exit code ${run.code}`
    const isRefused = failed === null && run.code !== 0
    return give(got, isRefused ? [] : [`${got}: ${firstLine(run.stderr)}`])
  }
  const differences = [
    ...(found.verdict === verdict ? [] : [`verdict ${found.verdict}, expected ${verdict}`]),
    ...(run.code === code ? [] : [`exit code ${run.code}, expected ${code}`]),
    ...(strictness === 'verdict' || failed === null
      ? []
      : [
          ...differencesOf('failed', found.failed, failed),
          ...differencesOf('not checked', found.notChecked, notChecked ?? []),
        ]),
  ]
  return give(describe(found), differences)
}

/** The expectation, in words. */
export function describeExpected({ expect }: ConformanceCase): string {
  if (expect.failed === null) return 'refused'
  return describe({
    verdict: expect.verdict,
    failed: expect.failed,
    notChecked: expect.not_checked ?? [],
  })
}

function describe({ verdict, failed, notChecked }: Found): string {
  const named = verdict === 'incomplete' ? notChecked : failed
  return named.length === 0 ? verdict : `${verdict}: ${named.join(', ')}`
}

/** Null when the program printed no report for this kind of source. */
function readReport({ kind }: ConformanceCase, stdout: string): Found | null {
  const value = readJson(stdout)
  switch (kind) {
    case 'bundle': {
      const { data } = BundleReport.safeParse(value)
      if (data === undefined) return null
      const { verdict, checks, exchange } = data.bundle
      return gather(verdict, [...checks, ...(exchange?.checks ?? [])])
    }
    case 'document': {
      const { data } = DocumentReport.safeParse(value)
      if (data === undefined) return null
      if (data.valid) return { verdict: 'verified', failed: [], notChecked: [] }
      return { verdict: 'invalid', failed: [data.code ?? 'no code'], notChecked: [] }
    }
    default: {
      const { data } = RecordsReport.safeParse(value)
      if (data === undefined) return null
      return gather(
        data.verdict,
        data.records.flatMap(({ checks }) => checks),
      )
    }
  }
}

function gather(verdict: Verdict, checks: z.infer<typeof Checks>): Found {
  const named = (outcome: string) => [
    ...new Set(checks.filter((check) => check.outcome === outcome).map(({ name }) => name)),
  ]
  return { verdict, failed: named('failed'), notChecked: named('not checked') }
}

function readJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}

function differencesOf(
  what: string,
  got: readonly string[],
  expected: readonly string[],
): readonly string[] {
  const more = got.filter((name) => !expected.includes(name))
  const less = expected.filter((name) => !got.includes(name))
  return [
    ...more.map((name) => `${what}: ${name}, which is not expected`),
    ...less.map((name) => `not ${what}: ${name}, which is expected`),
  ]
}

const LINE_LENGTH_MAX = 200

function firstLine(text: string): string {
  return (text.trim().split('\n')[0] ?? '').slice(0, LINE_LENGTH_MAX) || 'nothing on stderr'
}
