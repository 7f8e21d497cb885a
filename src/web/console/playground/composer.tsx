import { useRef } from 'preact/hooks'

/** On a narrow screen, this form stays visible while the conversation scrolls. */
export function Composer({
  isRunning,
  canSend,
  hasTurns,
  onSend,
  onStop,
  onClear,
}: {
  readonly isRunning: boolean
  /** True if an expected enclave takes calls and the reader has named a model. */
  readonly canSend: boolean
  readonly hasTurns: boolean
  readonly onSend: (question: string) => void
  readonly onStop: () => void
  readonly onClear: () => void
}) {
  const question = useRef<HTMLTextAreaElement>(null)
  const send = (event: Event) => {
    event.preventDefault()
    const { current } = question
    if (current === null || current.value.trim() === '' || !canSend || isRunning) return
    onSend(current.value)
    current.value = ''
    current.focus()
  }
  const sendByKeys = (event: KeyboardEvent) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) send(event)
  }
  return (
    <form class="composer" onSubmit={send}>
      <label for="question">
        Message <span class="hint">Ctrl + Enter sends it</span>
      </label>
      <textarea id="question" ref={question} rows={2} required onKeyDown={sendByKeys} />
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
        {!canSend && <span class="faint">First say which enclave and model must answer.</span>}
      </div>
    </form>
  )
}
