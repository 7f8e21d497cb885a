import { useRef, useState } from 'preact/hooks'
import type { Json } from '#attestation/json/value.ts'
import { askEvidence, OwnGatewayFault } from '../kit/gateway.ts'
import { Busy, FaultNotice } from '../kit/notices.tsx'
import { OutsideText } from '../kit/outside-text.tsx'
import { holdKey, tabKey } from '../kit/tab-key.ts'

/**
 * The content can be shown with an API key, or from a file that the caller kept. The key is sent
 * only to this gateway. The file is never sent.
 */
export function ContentForms({
  hash,
  kept,
  onWhole,
  onKept,
}: {
  readonly hash: string
  readonly kept: File | null
  readonly onWhole: (whole: Json) => void
  readonly onKept: (kept: File | null) => void
}) {
  return (
    <section aria-labelledby="content">
      <h2 id="content">What was asked and answered</h2>
      <p>
        Public evidence has only hashes of question and answer. If you may read them, you see them
        here, checked against these hashes.
      </p>
      <div class="cards">
        <KeyForm hash={hash} onWhole={onWhole} />
        <KeptForm kept={kept} onKept={onKept} />
      </div>
    </section>
  )
}

function KeyForm({
  hash,
  onWhole,
}: {
  readonly hash: string
  readonly onWhole: (whole: Json) => void
}) {
  const [key, setKey] = useState(tabKey() ?? '')
  const [isAsking, setIsAsking] = useState(false)
  const [fault, setFault] = useState<unknown>(null)
  const ask = async (event: Event) => {
    event.preventDefault()
    setIsAsking(true)
    setFault(null)
    try {
      const path = `/v1/verified/records/${hash}/evidence`
      onWhole(await askEvidence(path, { key: key.trim(), signal: AbortSignal.timeout(30_000) }))
      holdKey(key.trim(), false)
    } catch (failed) {
      setFault(failed)
    }
    setIsAsking(false)
  }
  return (
    <form class="card" onSubmit={(event) => void ask(event)}>
      <h3>With an API key</h3>
      <div class="field">
        <label for="key">
          API key <span class="hint">sent only to this gateway, kept in this tab's memory</span>
        </label>
        <input
          id="key"
          class="wide"
          type="password"
          autocomplete="off"
          spellcheck={false}
          required
          pattern="[\x21-\x7e]{1,512}"
          value={key}
          onInput={({ currentTarget }) => setKey(currentTarget.value)}
        />
      </div>
      <p>
        <button type="submit" disabled={isAsking}>
          Show the content
        </button>
      </p>
      {isAsking && <Busy what="Fetching the content" />}
      {fault !== null && (
        <FaultNotice fault={fault}>
          {fault instanceof OwnGatewayFault && fault.status === 404
            ? 'This key may not see the content: it belongs to another account.'
            : undefined}
        </FaultNotice>
      )}
    </form>
  )
}

function KeptForm({
  kept,
  onKept,
}: {
  readonly kept: File | null
  readonly onKept: (kept: File | null) => void
}) {
  const [isOver, setIsOver] = useState(false)
  const field = useRef<HTMLInputElement>(null)
  const leave = () => {
    if (field.current !== null) field.current.value = ''
    onKept(null)
  }
  return (
    <section
      class={`card drop ${isOver ? 'over' : ''}`}
      aria-label="With what you kept"
      onDragOver={(event) => {
        event.preventDefault()
        setIsOver(true)
      }}
      onDragLeave={() => setIsOver(false)}
      onDrop={(event) => {
        event.preventDefault()
        setIsOver(false)
        onKept(event.dataTransfer?.files[0] ?? null)
      }}
    >
      <h3>With what you kept</h3>
      <div class="field">
        <label for="kept">
          The evidence that you saved, or the answer{' '}
          <span class="hint">
            drop or choose a file; this page compares it and sends it nowhere
          </span>
        </label>
        <input
          id="kept"
          ref={field}
          class="wide"
          type="file"
          onChange={({ currentTarget }) => onKept(currentTarget.files?.[0] ?? null)}
        />
      </div>
      <p>
        <button type="button" disabled={kept === null} onClick={leave}>
          Remove it
        </button>
      </p>
      {kept !== null && (
        <p class="faint">
          Compared: <OutsideText text={kept.name} isOneLine={true} shownMax={100} />. The result is
          shown above.
        </p>
      )}
    </section>
  )
}
