import { useEffect, useRef, useState } from 'preact/hooks'
import { useDroppedFiles } from '../kit/dropped-file.ts'
import { IS_COPY } from '../kit/frame.tsx'
import { Busy, FaultNotice } from '../kit/notices.tsx'
import { OutsideText } from '../kit/outside-text.tsx'
import { PolicyNotice } from '../kit/policy-notice.tsx'
import { givePolicy, usePolicy } from '../kit/tab-policy.ts'
import { CopyButton } from '../kit/values.tsx'
import { ChainPanel, explorerOf } from './chain-panel.tsx'
import { EvidenceReport } from './evidence-report.tsx'
import { FilesField, Tick } from './fields.tsx'
import type { Job, JobOutcome, SourceKind } from './job.ts'
import { readFragment, takeLinked, writeFragment } from './link.ts'
import { LinkedNotice } from './linked-notice.tsx'
import { DocumentReport, ImageReport, ReleaseReport } from './other-reports.tsx'
import { PolicyForm } from './policy-form.tsx'
import { PrintHint } from './print-hint.tsx'
import { SaveEvidence } from './save-evidence.tsx'
import { OWN_EVIDENCE } from './saved-file.ts'
import { SourceInput } from './source-input.tsx'
import { type Checker, createChecker, fillInWorker } from './start-worker.ts'
import { ThisFile } from './this-file.tsx'
import { RESULT_ID, Refused } from './verdict.tsx'

type Progress =
  | { readonly kind: 'idle' }
  | { readonly kind: 'running'; readonly done: number | null }
  | {
      readonly kind: 'done'
      readonly outcome: JobOutcome
      readonly round: number
      readonly given: Given
    }
  | { readonly kind: 'failed'; readonly fault: unknown }

/**
 * The reader's input when a check begins. `values` has the endpoint only if the chain was asked.
 */
type Given = { readonly values: readonly unknown[]; readonly isChainAsked: boolean }

/** The evidence does not leave the browser. */
// biome-ignore lint/complexity/noExcessiveLinesPerFunction: a page and its state
export function VerifyPage() {
  const [source, setSource] = useState<Blob | null>(null)
  const [kind, setKind] = useState<SourceKind>('auto')
  const [request, setRequest] = useState<readonly File[]>([])
  const [answer, setAnswer] = useState<readonly File[]>([])
  const [idempotent, setIdempotent] = useState(false)
  const { own, inForce } = usePolicy()
  const { policy } = inForce
  const [isExpecting, setIsExpecting] = useState(false)
  // While a verdict is shown, the forms below are folded until the reader opens them.
  const [isOpen, setIsOpen] = useState(true)
  const [chain, setChain] = useState({ rpc: '', confirmations: '', explorer: '' })
  const [linked, setLinked] = useState(() => readFragment(location.hash))
  const { progress, run, stop } = useChecker((outcome) => setIsOpen(outcome.kind === 'refused'))
  const isDone = progress.kind === 'done'
  const isJudged = isDone && progress.outcome.kind !== 'refused'
  const asGiven = (checked: Blob | null, isChainAsked: boolean): Given => ({
    values: [
      checked,
      kind,
      request,
      answer,
      idempotent,
      policy,
      ...(isChainAsked ? [chain.rpc.trim(), chain.confirmations.trim()] : []),
    ],
    isChainAsked,
  })

  const check = (given: Blob | null, rpc: string | null = null) => {
    if (given === null) return
    const job: Job = {
      source: given,
      kind,
      request: request[0] ?? null,
      answer: answer[0] ?? null,
      idempotent,
      policy: {
        ...policy,
        confirmations: rpc === null ? '' : chain.confirmations,
      },
      rpc,
    }
    void run(job, asGiven(given, rpc !== null))
  }
  const choose = (given: Blob) => {
    setSource(given)
    check(given)
  }
  useDroppedFiles(choose)
  const isRunning = progress.kind === 'running'
  useEffect(() => {
    if (OWN_EVIDENCE !== null) choose(OWN_EVIDENCE)
  }, [])

  return (
    <>
      {progress.kind === 'running' && <Busy what="Checking" done={progress.done} />}
      <Result
        progress={progress}
        isOutdated={isDone && isOther(progress.given, asGiven(source, progress.given.isChainAsked))}
        explorer={explorerOf(chain.explorer)}
      />
      {isDone &&
        progress.outcome.kind === 'evidence' &&
        source !== null &&
        progress.given.values[0] === source && <SaveEvidence source={source} />}
      {linked !== null && (
        <LinkedNotice
          linked={linked}
          onUse={() => {
            givePolicy(takeLinked(own, linked), { isLinked: true })
            setIsExpecting(true)
            setIsOpen(true)
            setLinked(null)
          }}
          onLeave={() => setLinked(null)}
        />
      )}
      {!isDone && (
        <>
          <h1>{isRunning ? 'Checking' : 'Verify'}</h1>
          <p>
            Check evidence. Every check runs in this browser, and your files are not sent anywhere.
          </p>
        </>
      )}
      {!isJudged && <PolicyNotice />}
      <details
        class={isJudged ? 'panel forms' : 'forms'}
        open={isOpen}
        onToggle={({ currentTarget }) => setIsOpen(currentTarget.open)}
      >
        <summary hidden={isOpen && !isJudged}>
          Check something else, say what you expect, or ask a chain
        </summary>
        <SourceInput source={source} onSource={choose} />
        <details class="panel">
          <summary>What you kept: the request, the answer</summary>
          <FilesField
            label="Request"
            hint="The body that was sent. It is compared with the evidence. An answer or a kept stream cannot be checked without the request."
            isMultiple={false}
            files={request}
            onFiles={setRequest}
          />
          <FilesField
            label="Answer"
            hint="The answer as JSON, its event stream as it came, or evidence that has it"
            isMultiple={false}
            files={answer}
            onFiles={setAnswer}
          />
          <Tick
            label="The call had an Idempotency-Key, so its stream may be a repetition"
            isTicked={idempotent}
            onTick={setIdempotent}
          />
        </details>
        <details
          class="panel"
          open={isExpecting}
          onToggle={({ currentTarget }) => setIsExpecting(currentTarget.open)}
        >
          <summary>Your policy: code, configuration, roots, providers</summary>
          <PolicyForm given={own} readFile={fillInWorker} onChange={givePolicy} />
          {!IS_COPY && writeFragment(own) !== '' && (
            <p>
              <CopyButton
                text={`${location.origin}${location.pathname}${writeFragment(own)}`}
                what="a link with this policy"
              />{' '}
              a link with these keys, measurements and configurations. It contains no evidence, no
              roots, and no option that accepts more than these.
            </p>
          )}
        </details>
        <ChainPanel
          given={chain}
          onChange={(part) => setChain((before) => ({ ...before, ...part }))}
          onAsk={source === null || isRunning ? null : () => check(source, chain.rpc.trim())}
        />
        <div class="row check-row">
          <button
            type="button"
            class="primary"
            disabled={source === null || isRunning}
            onClick={() => check(source)}
          >
            Check{progress.kind === 'done' ? ' again' : ''}
          </button>
          <label class="as">
            Treat it as{' '}
            <select
              value={kind}
              onChange={({ currentTarget }) => setKind(currentTarget.value as SourceKind)}
            >
              <option value="auto">what it looks like</option>
              <option value="evidence">evidence of a completion</option>
              <option value="document">an attestation document</option>
              <option value="release">a release, or a list of them</option>
              <option value="image">an image (.eif)</option>
            </select>
          </label>
          {isRunning && (
            <button type="button" onClick={stop}>
              Stop
            </button>
          )}
        </div>
      </details>
      {IS_COPY ? <ThisFile /> : <SavePage />}
    </>
  )
}

function isOther(one: Given, other: Given): boolean {
  return one.values.some((value, at) => value !== other.values[at])
}

/** Runs one check at a time. The worker starts with the first check. */
function useChecker(onOutcome: (outcome: JobOutcome) => void) {
  const [progress, setProgress] = useState<Progress>({ kind: 'idle' })
  const checker = useRef<Checker | null>(null)
  const round = useRef(0)
  useEffect(() => {
    checker.current ??= createChecker()
  }, [])
  const run = async (job: Job, given: Given) => {
    checker.current ??= createChecker()
    const mine = ++round.current
    setProgress({ kind: 'running', done: null })
    const isLatest = () => mine === round.current
    try {
      const outcome = await checker.current.run(job, (done) => {
        if (isLatest()) setProgress({ kind: 'running', done })
      })
      if (!isLatest()) return
      onOutcome(outcome)
      setProgress({ kind: 'done', outcome, round: mine, given })
    } catch (fault) {
      if (isLatest()) setProgress({ kind: 'failed', fault })
    }
  }
  const stop = () => {
    round.current += 1
    checker.current?.stop()
    setProgress({ kind: 'idle' })
  }
  return { progress, run, stop }
}

/**
 * The heading takes the focus, so that people with a keyboard or a screen reader find the result.
 */
function Result({
  progress,
  isOutdated,
  explorer,
}: {
  readonly progress: Progress
  /** True if the reader has changed the input since the check. */
  readonly isOutdated: boolean
  readonly explorer: string
}) {
  const round = progress.kind === 'done' ? progress.round : null
  useEffect(() => {
    if (round !== null) document.getElementById(RESULT_ID)?.focus()
  }, [round])
  if (progress.kind === 'failed')
    return (
      <FaultNotice fault={progress.fault}>
        Load the page again. If the problem stays, save the page and open the copy from disk, or use
        the command line: affidavit verify FILE.
      </FaultNotice>
    )
  if (progress.kind !== 'done') return null
  return (
    <section aria-labelledby={RESULT_ID} class="result" data-round={progress.round}>
      <div role="status">
        {isOutdated && (
          <p class="notice warn" data-outdated>
            You changed something after this check, so this result is old. Press “Check again”, or
            “Ask the chain”.
          </p>
        )}
      </div>
      <PrintHint />
      <OutcomeView outcome={progress.outcome} explorer={explorer} />
    </section>
  )
}

function OutcomeView({
  outcome,
  explorer,
}: {
  readonly outcome: JobOutcome
  readonly explorer: string
}) {
  const notice = <PolicyNotice isUnderVerdict={true} />
  switch (outcome.kind) {
    case 'evidence':
      return (
        <EvidenceReport judged={outcome.judged} expected={outcome.expected} explorer={explorer}>
          {outcome.unreached !== null && <Unreached why={outcome.unreached} />}
          {notice}
        </EvidenceReport>
      )
    case 'document':
      return <DocumentReport found={outcome.found}>{notice}</DocumentReport>
    case 'release':
      return <ReleaseReport {...outcome}>{notice}</ReleaseReport>
    case 'image':
      return <ImageReport found={outcome.found}>{notice}</ImageReport>
    case 'refused':
      return <Refused outcome={outcome} />
  }
}

function SavePage() {
  return (
    <section>
      <h2>Without this gateway</h2>
      <p>
        You do not have to trust the server of this page: save the page, and open the file from your
        disk, also without a network. Or use the command line: <code>affidavit verify FILE</code>.
        Both use the same code.
      </p>
      <p>
        <a class="button" href="/verify/copy" download="affidavit-verify.html">
          Save this page
        </a>
      </p>
    </section>
  )
}

function Unreached({ why }: { readonly why: string }) {
  return (
    <p role="status">
      The chain did not confirm the block:{' '}
      <OutsideText text={why} isOneLine={true} shownMax={500} />. The rest was checked. Is the URL
      right? Does the endpoint answer pages of other origins (CORS)?
    </p>
  )
}
