import { useId, useRef, useState } from 'preact/hooks'
import { FileName } from './fields.tsx'

/** Characters. The field does not show a longer text, but the text is checked too. */
const FIELD_LENGTH_MAX = 50_000

/** Evidence can be dropped, chosen or pasted. */
export function SourceInput({
  source,
  onSource,
}: {
  readonly source: Blob | null
  readonly onSource: (source: Blob) => void
}) {
  const id = useId()
  const [text, setText] = useState('')
  const [isOver, setIsOver] = useState(false)
  const input = useRef<HTMLInputElement>(null)

  const takeText = (given: string) => onSource(new Blob([given], { type: 'text/plain' }))
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: one more way beside the button.
    <div
      class={`drop ${isOver ? 'over' : ''}`}
      onDragOver={(event) => {
        event.preventDefault()
        setIsOver(true)
      }}
      onDragLeave={() => setIsOver(false)}
      onDrop={(event) => {
        event.preventDefault()
        setIsOver(false)
        const [file] = event.dataTransfer?.files ?? []
        if (file !== undefined) onSource(file)
        else takeText(event.dataTransfer?.getData('text') ?? '')
      }}
    >
      <p class="field">
        <label for={`${id}-file`}>Drop a file here, or choose one</label>
        <span class="hint" id={`${id}-hint`}>
          Evidence, a record, a kept stream, an attestation document, a release, an image
        </span>
        <input
          ref={input}
          id={`${id}-file`}
          aria-describedby={`${id}-hint`}
          type="file"
          onChange={({ currentTarget }) => {
            const [file] = currentTarget.files ?? []
            if (file !== undefined) onSource(file)
            // Clears the field, because the reader may change the file and choose it again.
            currentTarget.value = ''
          }}
        />
      </p>
      <div class="field">
        <label for={`${id}-text`}>Or paste its text</label>
        <textarea
          id={`${id}-text`}
          class="wide mono"
          rows={2}
          spellcheck={false}
          autocomplete="off"
          value={text}
          onInput={({ currentTarget }) => setText(currentTarget.value)}
          onPaste={(event) => {
            const pasted = event.clipboardData?.getData('text') ?? ''
            if (pasted.length <= FIELD_LENGTH_MAX) return
            // Many megabytes of text in a field would make the page slow.
            event.preventDefault()
            takeText(pasted)
          }}
        />
      </div>
      <p class="row">
        <button type="button" disabled={text.trim() === ''} onClick={() => takeText(text)}>
          Check the text
        </button>
        <span aria-live="polite">
          {source !== null && (
            <>
              Chosen: <FileName file={source} />
            </>
          )}
        </span>
      </p>
    </div>
  )
}
