import { describeSession, type ShownCall } from '#attestation/report/shown-session.ts'
import type { SessionReport } from '#attestation/session/verify-session.ts'
import { CheckList, TONE_OF } from '../kit/check-list.tsx'
import { Messages } from '../kit/exchange.tsx'
import { Development, State } from '../kit/notices.tsx'
import { OutsideText } from '../kit/outside-text.tsx'
import { Hex } from '../kit/values.tsx'

const OUTCOMES = {
  verified: 'passed',
  incomplete: 'not checked',
  not_accepted: 'failed',
  invalid: 'failed',
} as const

/** Further calls are only counted. */
const CALLS_SHOWN = 500

/** Shows the checks of a session, and the steps that each call added. */
export function SessionReportView({
  report,
  isMarked,
}: {
  readonly report: SessionReport
  readonly isMarked: boolean
}) {
  const { calls, stepsLeftOut } = describeSession(report)
  const shown = calls.slice(0, CALLS_SHOWN)
  return (
    <Development.Provider value={isMarked}>
      <h2>Is the session whole?</h2>
      <CheckList checks={report.checks} />
      {shown.length > 0 && <h2>What happened, call by call</h2>}
      {shown.map((call, at) => (
        <CallView key={at} call={call} at={at} />
      ))}
      {calls.length > shown.length && (
        <p>{calls.length - shown.length} more calls were checked, but are not shown.</p>
      )}
      {stepsLeftOut > 0 && <p>{stepsLeftOut} more steps of the run are not shown.</p>}
    </Development.Provider>
  )
}

function CallView({ call, at }: { readonly call: ShownCall; readonly at: number }) {
  const { hash, verdict, headline, relation, steps } = call
  return (
    <section aria-label={`Call ${at}`} data-call={at} data-call-verdict={verdict}>
      <h3>
        Call {at} <State tone={TONE_OF[OUTCOMES[verdict]]}>{verdict.replace('_', ' ')}</State>
      </h3>
      <p class="faint">
        <OutsideText text={headline} isOneLine={true} shownMax={500} />
        {relation !== null && ` It ${relation}.`}{' '}
        {hash !== null && <Hex value={hash} digits={64} />}
      </p>
      <Messages messages={steps} />
    </section>
  )
}
