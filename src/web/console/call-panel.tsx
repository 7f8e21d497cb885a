import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'
import { describeExchange } from '#attestation/report/describe-exchange.ts'
import { Exchange } from '../kit/exchange.tsx'
import { State } from '../kit/notices.tsx'
import { OutsideText } from '../kit/outside-text.tsx'
import { saveFile } from '../kit/save-file.ts'
import { Scrolling } from '../kit/scrolling.tsx'
import { Count, Hex, Time } from '../kit/values.tsx'
import { AnchorStateLabel } from './anchor-state.tsx'
import { type Call, HISTORY_PATH, isEncrypted, shortHash, tokensOf } from './calls.ts'
import { ConfirmButton } from './confirm-button.tsx'
import { DIALECT_LABELS, OUTCOME_LABELS } from './history-filters.tsx'
import { NEW_TAB } from './new-tab.ts'
import { useSession } from './session.ts'
import { ActionState, useAction } from './use-action.tsx'
import type { CallAnchor } from './use-call-anchors.ts'
import { useNarrow } from './use-narrow.ts'

/**
 * A panel beside the list, or a sheet above the list on a narrow screen. The panel takes the focus
 * when it appears. Escape closes it.
 */
export function CallPanel({
  call,
  anchor,
  onClose,
  onChange,
}: {
  readonly call: Call
  readonly anchor: CallAnchor | undefined
  readonly onClose: () => void
  /** Called when the content of the call was erased. */
  readonly onChange: (call: Call) => void
}) {
  const dialog = useRef<HTMLDialogElement>(null)
  const heading = useRef<HTMLHeadingElement>(null)
  const isSheet = useNarrow()
  useLayoutEffect(() => {
    const { current } = dialog
    if (isSheet) current?.showModal()
    else current?.show()
    heading.current?.focus()
    return () => current?.close()
  }, [isSheet])
  useEffect(() => {
    const close = (event: KeyboardEvent) => {
      // While a dialog is open, Escape closes only the dialog.
      if (event.key === 'Escape' && document.querySelector(':modal') === null) onClose()
    }
    document.addEventListener('keydown', close)
    return () => document.removeEventListener('keydown', close)
  }, [onClose])
  return (
    <dialog
      ref={dialog}
      class="panel"
      aria-labelledby="call-heading"
      onCancel={(event) => {
        event.preventDefault()
        onClose()
      }}
    >
      <div class="heading-row">
        <h2 id="call-heading" tabIndex={-1} ref={heading}>
          Call <span class="hex">{shortHash(call)}</span>
        </h2>
        <button type="button" class="small" onClick={onClose}>
          Close
        </button>
      </div>
      <States call={call} anchor={anchor} />
      <p class="row">
        <a {...NEW_TAB} href={`/c/${call.hash}`}>
          Public evidence
        </a>
        {anchor !== undefined && (
          <a {...NEW_TAB} href={`/log/${anchor.notary}`}>
            Log of its notary
          </a>
        )}
        <a {...NEW_TAB} href="/verify">
          Verify a saved file
        </a>
      </p>
      <CallButtons call={call} onChange={onChange} />
      <Facts call={call} anchor={anchor} />
      <Texts call={call} />
      <Stored call={call} />
    </dialog>
  )
}

function States({
  call,
  anchor,
}: {
  readonly call: Call
  readonly anchor: CallAnchor | undefined
}) {
  const [tone, words] = OUTCOME_LABELS[call.receipt.outcome]
  return (
    <p class="row">
      <State tone={tone}>{words}</State>
      {anchor !== undefined && <AnchorStateLabel state={anchor.state} />}
      {isEncrypted(call) && <State tone="good">encrypted</State>}
      {call.erased !== undefined && <State tone="open">erased</State>}
    </p>
  )
}

function CallButtons({
  call,
  onChange,
}: {
  readonly call: Call
  readonly onChange: (call: Call) => void
}) {
  const session = useSession()
  const path = `${HISTORY_PATH}/${call.hash}`
  const action = useAction()
  const save = () =>
    action.run(async () => {
      const text = await session.askText(`${path}/evidence`)
      saveFile(`evidence-${shortHash(call)}.json`, text)
    })
  const erase = async () => onChange(await session.ask<Call>(path, { method: 'DELETE' }))
  return (
    <>
      <div class="row">
        <button type="button" class="small" disabled={action.isActing} onClick={() => void save()}>
          Save the evidence
        </button>
        {call.request !== null && (
          <ConfirmButton
            label="Erase"
            what={`the content of ${shortHash(call)}`}
            title="Erase question and answer?"
            act={erase}
          >
            <p>
              This service deletes them forever. The proofs stay. If you want to show the text
              later, save the evidence first. Backups may still have the text.
            </p>
          </ConfirmButton>
        )}
      </div>
      <ActionState action={action} what="Asking for the evidence…" />
    </>
  )
}

function Facts({ call, anchor }: { readonly call: Call; readonly anchor: CallAnchor | undefined }) {
  const { receipt } = call
  const tokens = tokensOf(call)
  return (
    <dl class="pairs">
      <dt>Time</dt>
      <dd>
        <Time ms={call.created_at * 1000} />, took{' '}
        <Count value={receipt.finished_at - receipt.started_at} /> ms
      </dd>
      <dt>Model</dt>
      <dd>
        <OutsideText text={receipt.model.requested} isOneLine={true} shownMax={100} />
        {receipt.model.returned !== null && receipt.model.returned !== receipt.model.requested && (
          <>
            , answered as{' '}
            <OutsideText text={receipt.model.returned} isOneLine={true} shownMax={100} />
          </>
        )}
      </dd>
      <dt>API</dt>
      <dd>{DIALECT_LABELS[call.dialect]}</dd>
      <dt>Provider</dt>
      <dd>
        <OutsideText
          text={`${receipt.provider.name}, ${receipt.provider.origin}`}
          isOneLine={true}
          shownMax={300}
        />
      </dd>
      <dt>Tokens</dt>
      <dd>
        {tokens === null ? (
          <span class="faint">not stated</span>
        ) : (
          <>
            <Count value={tokens.prompt_tokens} /> in, <Count value={tokens.completion_tokens} />{' '}
            out
          </>
        )}
      </dd>
      <dt>Hash</dt>
      <dd>
        <Hex value={call.hash} digits={16} />
      </dd>
      <dt>Leaf</dt>
      <dd>
        <Count value={receipt.index} />
      </dd>
      <dt>Notary</dt>
      <dd>
        {anchor === undefined ? (
          <span class="faint">not known</span>
        ) : (
          <Hex value={anchor.notary} digits={16} />
        )}
      </dd>
      <dt>Anchor</dt>
      <dd>
        <Hex value={anchor?.txHash ?? call.tx_hash} digits={16} />
        {anchor !== undefined && anchor.block !== null && <> in block {anchor.block}</>}
      </dd>
    </dl>
  )
}

function Texts({ call }: { readonly call: Call }) {
  const { erased, withheld } = call
  const exchange = useMemo(() => describeExchange(call), [call])
  if (erased !== undefined)
    return (
      <p class="faint">
        Erased by {erased.by === 'retention' ? 'a retention rule' : `the ${erased.by}`} on{' '}
        <Time ms={erased.at * 1000} />:{' '}
        <OutsideText text={erased.reason} isOneLine={true} shownMax={300} />
      </p>
    )
  if (withheld !== undefined)
    return (
      <p class="notice warn">
        The content is stored, but cannot be read now:{' '}
        <OutsideText text={withheld.message} isOneLine={true} shownMax={300} /> Tell the operator.
      </p>
    )
  if (call.request === null)
    return (
      <p class="faint">
        {isEncrypted(call)
          ? 'The content of an encrypted call is not stored: only its caller has the content.'
          : 'There is no content.'}
      </p>
    )
  return <Exchange exchange={exchange} heading="h3" />
}

/** Shows the stored texts only when the reader opens them, because a call may have megabytes. */
function Stored({ call: { request, response, receipt } }: { readonly call: Call }) {
  const [isOpen, setIsOpen] = useState(false)
  return (
    <details onToggle={({ currentTarget }) => setIsOpen(currentTarget.open)}>
      <summary>Everything that is stored</summary>
      {isOpen && (
        <>
          {request !== null && <JsonView label="Request" value={request} />}
          {response !== null && <JsonView label="Response" value={response} />}
          <JsonView label="Receipt" value={receipt} />
        </>
      )}
    </details>
  )
}

function JsonView({ label, value }: { readonly label: string; readonly value: object }) {
  return (
    <>
      <h3>{label}</h3>
      <Scrolling label={label}>
        <pre>
          <OutsideText text={JSON.stringify(value, null, 2)} />
        </pre>
      </Scrolling>
    </>
  )
}
