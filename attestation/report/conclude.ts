import type { Judgement } from '../evidence/verdict.ts'
import { nameRelease } from '../release/release-name.ts'
import type { BundleJudgement } from './judge-bundle.ts'
import type { EvidenceJudgement } from './judge-evidence.ts'
import type { Signed, SubjectReport } from './judge-record.ts'
import { isoOf, printable } from './printable.ts'
import { sayVerdict } from './say-verdict.ts'

/** What evidence of any kind comes to, in words that are the same everywhere. */
export type Conclusion = {
  readonly verdict: Judgement<string>['verdict']
  /** `VERIFIED`, `CONSISTENT` or `INVALID`, and what that rests on, on one line. */
  readonly headline: string
  /** The same for a reader who is no engineer: who signed, when, and what is not shown. */
  readonly sentence: string
}

/** Puts a judgement into words. Text from outside is escaped. */
export function conclude(judged: EvidenceJudgement): Conclusion {
  return judged.kind === 'bundle' ? concludeBundle(judged) : concludeRecords(judged)
}

function concludeBundle({ verdict, open, report, differences }: BundleJudgement): Conclusion {
  const { checks, facts } = report
  if (report.verdict !== 'invalid' && differences.length > 0)
    return {
      verdict,
      headline: `INVALID: failed at ${differences.join(', ')}.`,
      sentence: 'This is not evidence of the texts that you kept.',
    }
  const named = (outcome: string) =>
    checks.filter((check) => check.outcome === outcome).map(({ name }) => name)
  return {
    verdict,
    headline: sayVerdict(verdict, {
      failed: named('failed'),
      open: verdict === 'verified' ? named('not checked') : open,
    }),
    sentence: saySigned(verdict, {
      open,
      signed: facts,
    }),
  }
}

function concludeRecords({
  verdict,
  records,
}: Extract<EvidenceJudgement, { kind: 'records' }>): Conclusion {
  const bad = records.filter(({ ok }) => !ok)
  const failed = bad.flatMap(({ checks }) =>
    checks.filter(({ outcome }) => outcome === 'failed').map(({ name }) => name),
  )
  const open = records.flatMap(openOf)
  const [record] = records
  const isOne = records.length === 1 && record !== undefined
  const where = isOne ? '' : ` in ${bad.length || 'any'} of ${records.length} records`
  return {
    verdict,
    headline: sayVerdict(verdict, { failed, open, where }),
    sentence: saySigned(verdict, { open, signed: isOne ? record.signed : null }),
  }
}

/** What was not checked of a record, in the names that the checks of a bundle have. */
function openOf({ holder, doubts }: SubjectReport): readonly string[] {
  const code = holder === null ? ['attestation document', 'measurements'] : []
  return [
    ...doubts.flatMap((doubt) => {
      if (doubt.kind === 'cut') return ['outcome']
      return doubt.kind === 'not in log'
        ? ['receipt in log']
        : doubt.parts.map((part) => `${part} hash`)
    }),
    ...(holder?.code === 'any' ? ['measurements'] : code),
    ...['boot configuration', 'anchor'],
  ]
}

function saySigned(
  verdict: Conclusion['verdict'],
  { open, signed }: { readonly open: readonly string[]; readonly signed: Signed | null },
): string {
  if (verdict === 'invalid')
    return 'Do not rely on this: it was changed, or it is not what it claims to be.'
  const notShown = [...new Set(open.map((name) => PLAIN_WORDS[name] ?? name))]
  const rest = [...notShown, 'that the answer is true'].join('; ')
  if (signed === null) return `Nothing was found to be changed. Not shown: ${rest}.`
  const { notary, finishedAt, release } = signed
  const isKnown = !open.includes('measurements')
  const code = release === null ? 'code that you expect' : printable(nameRelease(release))
  const who = isKnown ? `An enclave that runs ${code}` : `The account ${notary}`
  const time = finishedAt === null ? '' : ` at ${timeOf(finishedAt)}`
  return `${who} signed this question and this answer${time}, and neither was changed since. Not shown: ${rest}.`
}

function timeOf(seconds: number): string {
  return isoOf(seconds * 1000, `${seconds} s`)
    .replace('T', ' ')
    .replace('.000Z', ' UTC')
}

const ANCHORED = 'that the answer was recorded on the chain'
const SET_UP = 'that the enclave was set up as you expect'

/** What a check shows, as a clause. */
const PLAIN_WORDS: Readonly<Record<string, string>> = {
  'request hash': 'what was asked',
  'response hash': 'what was answered',
  'attestation document': 'that an enclave holds the key',
  measurements: 'that the enclave runs code that you expect',
  'boot configuration': SET_UP,
  'expected configuration': SET_UP,
  outcome: 'that the answer is whole',
  'receipt in log': 'that the answer is in the log',
  'transaction hash': ANCHORED,
  anchor: ANCHORED,
  'block header': ANCHORED,
  'anchor time': ANCHORED,
  'transaction in block': ANCHORED,
  'anchor outcome': ANCHORED,
  'block on chain': 'that the block is on the chain',
}
