import { useRef, useState } from 'preact/hooks'
import { FaultNotice } from '../../kit/notices.tsx'
import { escapeLine } from '../../kit/outside-text.tsx'
import type { Loaded } from '../../kit/use-loaded.ts'

/** Models as the gateway lists them. */
export type ModelList = {
  readonly data: readonly { readonly id: string }[]
  /** An older gateway tells none. */
  readonly patterns?: readonly { readonly pattern: string }[]
}

/** What is asked, and of which model. */
export type Question = {
  readonly question: string
  readonly model: string
  /** Of the caller's own at the provider; empty for none. */
  readonly credential: string
}

const OTHER = '(other)'
/** A name of a model is some dozen characters. */
const NAME_SHOWN_MAX = 100
/** A provider table has about a dozen. */
const PATTERNS_SHOWN_MAX = 12

/** Where a question is written: to which model, and whether it is encrypted. */
export function Composer({
  models,
  isEncrypted,
  isRunning,
  canSend,
  hasTurns,
  onEncrypted,
  onSend,
  onStop,
  onClear,
}: {
  readonly models: Loaded<ModelList>
  readonly isEncrypted: boolean
  readonly isRunning: boolean
  readonly canSend: boolean
  readonly hasTurns: boolean
  readonly onEncrypted: (isEncrypted: boolean) => void
  readonly onSend: (question: Question) => void
  readonly onStop: () => void
  readonly onClear: () => void
}) {
  const [model, setModel] = useState<string | null>(null)
  const [other, setOther] = useState('')
  const question = useRef<HTMLTextAreaElement>(null)
  const credential = useRef<HTMLInputElement>(null)
  const ids = models.value?.data.map(({ id }) => id) ?? []
  const patterns = (models.value?.patterns ?? [])
    .slice(0, PATTERNS_SHOWN_MAX)
    .map(({ pattern }) => escapeLine(pattern.slice(0, NAME_SHOWN_MAX)))
    .join(', ')
  const chosen = model ?? ids[0] ?? OTHER

  const send = (event: Event) => {
    event.preventDefault()
    const field = question.current
    const name = chosen === OTHER ? other.trim() : chosen
    if (field === null || field.value.trim() === '' || name === '' || !canSend || isRunning) return
    onSend({
      question: field.value,
      model: name,
      credential: credential.current?.value.trim() ?? '',
    })
    field.value = ''
    field.focus()
  }
  const sendByKeys = (event: KeyboardEvent) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) send(event)
  }

  return (
    <form class="composer" onSubmit={send}>
      <div class="row">
        <div class="field">
          <label for="model">Model</label>
          <select
            id="model"
            value={chosen}
            onChange={({ currentTarget }) => setModel(currentTarget.value)}
          >
            {ids.map((id) => (
              <option key={id} value={id}>
                {escapeLine(id.slice(0, NAME_SHOWN_MAX))}
              </option>
            ))}
            <option value={OTHER}>Another model</option>
          </select>
        </div>
        {chosen === OTHER && (
          <div class="field">
            <label for="other-model">
              Its id{' '}
              <span class="hint">
                {patterns === '' ? 'the gateway names no pattern of ids' : `such as ${patterns}`}
              </span>
            </label>
            <input
              id="other-model"
              value={other}
              maxlength={256}
              autocomplete="off"
              onInput={({ currentTarget }) => setOther(currentTarget.value)}
            />
          </div>
        )}
      </div>
      {models.fault !== null && <FaultNotice fault={models.fault} onRetry={models.reload} />}
      <div class="field">
        <label for="question">
          Message <span class="hint">Ctrl + Enter sends it</span>
        </label>
        <textarea id="question" ref={question} rows={3} required onKeyDown={sendByKeys} />
      </div>
      <label class="choice">
        <input
          type="checkbox"
          checked={isEncrypted}
          disabled={isRunning}
          onChange={({ currentTarget }) => onEncrypted(currentTarget.checked)}
        />{' '}
        Encrypt to the enclave{' '}
        <span class="hint">
          {isEncrypted
            ? 'The gateway cannot read the message, the answer or the credential.'
            : 'The gateway reads the message, the answer and the credential, and keeps the chat in its history.'}
        </span>
      </label>
      <details class="own-credential">
        <summary>Your own provider credential</summary>
        <div class="field">
          <label for="credential">Credential</label>
          <input
            id="credential"
            ref={credential}
            type="password"
            autocomplete="off"
            aria-describedby="credential-hint"
          />
          <p class="hint" id="credential-hint">
            Your key at the model provider, in place of the operator's. It stays in this tab's
            memory, and is sent with each message as Fine-Tune-Authorization.
          </p>
        </div>
      </details>
      <div class="row">
        <button type="submit" class="primary" disabled={!canSend || isRunning}>
          Send
        </button>
        <button type="button" disabled={!isRunning} onClick={onStop}>
          Stop
        </button>
        <button type="button" disabled={isRunning || !hasTurns} onClick={onClear}>
          New conversation
        </button>
        {!canSend && <span class="faint">First say above which enclave must answer.</span>}
      </div>
    </form>
  )
}
