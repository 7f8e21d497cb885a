import { FaultNotice } from '../../kit/notices.tsx'
import { escapeLine } from '../../kit/outside-text.tsx'
import type { Loaded } from '../../kit/use-loaded.ts'

export type ModelList = {
  readonly data: readonly { readonly id: string }[]
  /** Absent in answers of older gateways. */
  readonly patterns?: readonly { readonly pattern: string }[]
}

export type ModelChoice = {
  /** Null for the first model in the list. */
  readonly listed: string | null
  /** Used when `listed` is OTHER. */
  readonly other: string
  readonly isEncrypted: boolean
  /** The caller's own credential at the provider, or empty. */
  readonly credential: string
}

export const FIRST_ASKED: ModelChoice = {
  listed: null,
  other: '',
  isEncrypted: true,
  credential: '',
}

const OTHER = '(other)'
/** Characters. Real names are much shorter. */
const NAME_SHOWN_MAX = 100
/** A provider table has about a dozen patterns. */
const PATTERNS_SHOWN_MAX = 12

/** Empty while the reader has not named a model. */
export function modelOf(asked: ModelChoice, models: ModelList | null): string {
  const choice = choiceOf(asked, models)
  return choice === OTHER ? asked.other.trim() : choice
}

function choiceOf({ listed }: ModelChoice, models: ModelList | null): string {
  return listed ?? models?.data[0]?.id ?? OTHER
}

export function ModelForm({
  asked,
  models,
  isRunning,
  onChange,
}: {
  readonly asked: ModelChoice
  readonly models: Loaded<ModelList>
  readonly isRunning: boolean
  readonly onChange: (asked: ModelChoice) => void
}) {
  const ids = models.value?.data.map(({ id }) => id) ?? []
  const patterns = (models.value?.patterns ?? [])
    .slice(0, PATTERNS_SHOWN_MAX)
    .map(({ pattern }) => escapeLine(pattern.slice(0, NAME_SHOWN_MAX)))
    .join(', ')
  const choice = choiceOf(asked, models.value)
  return (
    <>
      <div class="field">
        <label for="model">Model</label>
        <select
          id="model"
          class="wide"
          value={choice}
          onChange={({ currentTarget }) => onChange({ ...asked, listed: currentTarget.value })}
        >
          {ids.map((id) => (
            <option key={id} value={id}>
              {escapeLine(id.slice(0, NAME_SHOWN_MAX))}
            </option>
          ))}
          <option value={OTHER}>Another model</option>
        </select>
      </div>
      {choice === OTHER && (
        <div class="field">
          <label for="other-model">
            Its id{' '}
            <span class="hint">
              {patterns === '' ? 'the gateway names no pattern of ids' : `such as ${patterns}`}
            </span>
          </label>
          <input
            id="other-model"
            class="wide"
            value={asked.other}
            maxlength={256}
            autocomplete="off"
            onInput={({ currentTarget }) => onChange({ ...asked, other: currentTarget.value })}
          />
        </div>
      )}
      {models.fault !== null && <FaultNotice fault={models.fault} onRetry={models.reload} />}
      <label class="choice">
        <input
          type="checkbox"
          checked={asked.isEncrypted}
          disabled={isRunning}
          onChange={({ currentTarget }) =>
            onChange({ ...asked, isEncrypted: currentTarget.checked })
          }
        />{' '}
        Encrypt to the enclave{' '}
        <span class="hint">
          {asked.isEncrypted
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
            class="wide"
            type="password"
            value={asked.credential}
            autocomplete="off"
            aria-describedby="credential-hint"
            onInput={({ currentTarget }) => onChange({ ...asked, credential: currentTarget.value })}
          />
          <p class="hint" id="credential-hint">
            Your key at the model provider, in place of the operator's. It stays in this tab's
            memory, and is sent with each message as Fine-Tune-Authorization.
          </p>
        </div>
      </details>
    </>
  )
}
