import { CheckList } from '../../kit/check-list.tsx'
import { Busy, Development, FaultNotice, State } from '../../kit/notices.tsx'
import { OutsideText } from '../../kit/outside-text.tsx'
import { saveFile } from '../../kit/save-file.ts'
import { NEW_TAB } from '../new-tab.ts'
import { type Answer, adviceFor, type ClientRefusal, countChecks, type Turn } from './turn.ts'

/** Characters that are shown at first. */
const TEXT_SHOWN_MAX = 20_000

export function TurnView({
  turn,
  onLookAgain,
}: {
  readonly turn: Turn
  /** Called when the reader wants to wait for the anchor again. */
  readonly onLookAgain: () => void
}) {
  const { question, model, text, answer } = turn
  return (
    <article class="turn" aria-label={`Question ${turn.id}`}>
      <h2>You</h2>
      <p>
        <OutsideText text={question} shownMax={TEXT_SHOWN_MAX} />
      </p>
      <h2>
        <OutsideText text={model} isOneLine={true} shownMax={100} />
      </h2>
      {answer.kind === 'refused' ? (
        <RefusedText text={text} />
      ) : (
        <p class={answer.kind === 'checked' ? undefined : 'unchecked'}>
          <OutsideText text={text} shownMax={TEXT_SHOWN_MAX} />
        </p>
      )}
      <AnswerState turn={turn} answer={answer} onLookAgain={onLookAgain} />
    </article>
  )
}

/** The text is folded, so that the reader does not read it by mistake. */
function RefusedText({ text }: { readonly text: string }) {
  if (text === '') return null
  return (
    <details>
      <summary>Text that came before the answer was refused</summary>
      <p class="refused">
        <OutsideText text={text} shownMax={TEXT_SHOWN_MAX} />
      </p>
    </details>
  )
}

function AnswerState({
  turn,
  answer,
  onLookAgain,
}: {
  readonly turn: Turn
  readonly answer: Answer
  readonly onLookAgain: () => void
}) {
  switch (answer.kind) {
    case 'arriving':
      return (
        <>
          <p>
            <State tone="open">Not checked yet</State>{' '}
            {turn.isEncrypted ? 'Encrypted to the enclave.' : 'Not encrypted.'}
          </p>
          <Busy what="The answer is coming…" />
        </>
      )
    case 'stopped':
      return (
        <p>
          <State tone="warn">Stopped</State> The text that came was not checked: only a complete
          answer can be checked.
        </p>
      )
    case 'failed':
      return <FaultNotice fault={answer.fault} />
    case 'refused':
      return <Refusing refusal={answer.refusal} />
    case 'checked':
      return <Checked turn={turn} answer={answer} onLookAgain={onLookAgain} />
  }
}

function Refusing({ refusal }: { readonly refusal: ClientRefusal }) {
  return (
    <>
      <p>
        <State tone="bad">Refused</State> <code>{refusal.code}</code>
      </p>
      <FaultNotice fault={new Error(refusal.message)}>{adviceFor(refusal)}</FaultNotice>
      {refusal.checks.length > 0 && (
        <details open>
          <summary>Checks: {countChecks(refusal.checks)}</summary>
          <CheckList checks={refusal.checks} />
        </details>
      )}
    </>
  )
}

function Checked({
  turn,
  answer: { proof, anchor },
  onLookAgain,
}: {
  readonly turn: Turn
  readonly answer: Extract<Answer, { kind: 'checked' }>
  readonly onLookAgain: () => void
}) {
  const { hash, checks } = proof
  const name = hash.slice(0, 12)
  return (
    <Development.Provider value={turn.isDevelopment}>
      <p class="row">
        {turn.isDevelopment ? (
          <State tone="warn">Checked, development only</State>
        ) : (
          <State tone="good">Checked</State>
        )}
        {turn.isEncrypted ? (
          <State tone={turn.isDevelopment ? 'open' : 'good'}>Encrypted</State>
        ) : (
          <State tone="open">Not encrypted</State>
        )}
        <AnchorState anchor={anchor} />
      </p>
      <details>
        <summary>Checks of the answer: {countChecks(checks)}</summary>
        <CheckList checks={checks} />
      </details>
      {anchor.kind === 'mined' && (
        <details>
          <summary>Checks of its evidence: {countChecks(anchor.evidence.report.checks)}</summary>
          <p class="faint">
            This page asks only the gateway. So it does not check whether the block is on the chain.{' '}
            <a {...NEW_TAB} href="/verify">
              Verify
            </a>{' '}
            does, with a chain endpoint of your choice.
          </p>
          <CheckList checks={anchor.evidence.report.checks} />
        </details>
      )}
      {anchor.kind === 'unknown' && (
        <FaultNotice fault={anchor.fault} onRetry={onLookAgain}>
          The answer passed its checks. So far, its time is only a statement of the enclave.
        </FaultNotice>
      )}
      <p class="row">
        <button
          type="button"
          onClick={() =>
            saveFile(
              `evidence-${name}.json`,
              anchor.kind === 'mined' ? anchor.evidence.save() : proof.save(),
            )
          }
        >
          Save the evidence
        </button>
        <a {...NEW_TAB} href={`/c/${hash}`}>
          Public evidence
        </a>
        <a {...NEW_TAB} href="/verify">
          Verify a saved file
        </a>
      </p>
      {turn.isEncrypted && (
        <p class="faint">
          Only this page has the question and answer: save the evidence to keep them.
        </p>
      )}
    </Development.Provider>
  )
}

function AnchorState({
  anchor,
}: {
  readonly anchor: Extract<Answer, { kind: 'checked' }>['anchor']
}) {
  switch (anchor.kind) {
    case 'waiting':
      return <State tone="open">Waiting for its anchor</State>
    case 'mined':
      // The tone is `open`, because the page did not ask the chain for the block.
      return <State tone="open">Anchored in block {anchor.evidence.evidence.block?.number}</State>
    case 'unknown':
      return <State tone="warn">No anchor seen</State>
  }
}
