import type { ComponentChildren } from 'preact'
import { useId, useRef } from 'preact/hooks'
import { OutsideText } from '../kit/outside-text.tsx'
import { Count } from '../kit/values.tsx'

export function TextField({
  label,
  hint,
  value,
  onValue,
  rows = 1,
  ...rest
}: {
  readonly label: string
  readonly hint?: ComponentChildren
  readonly value: string
  readonly onValue: (value: string) => void
  readonly rows?: number
  readonly inputMode?: 'numeric' | 'url'
  readonly placeholder?: string
}) {
  const id = useId()
  const given = {
    id,
    value,
    ...(hint === undefined ? {} : { 'aria-describedby': `${id}-hint` }),
    autocomplete: 'off',
    spellcheck: false,
    onInput: (event: { readonly currentTarget: { readonly value: string } }) =>
      onValue(event.currentTarget.value),
    ...rest,
  } as const
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {hint !== undefined && (
        <span id={`${id}-hint`} class="hint">
          {hint}
        </span>
      )}
      <div>
        {rows === 1 ? (
          <input type="text" class="wide" {...given} />
        ) : (
          <textarea class="wide mono" rows={rows} {...given} />
        )}
      </div>
    </div>
  )
}

export function FilesField({
  label,
  hint,
  files,
  onFiles,
  isMultiple = true,
}: {
  readonly label: string
  readonly hint?: ComponentChildren
  readonly files: readonly File[]
  readonly onFiles: (files: readonly File[]) => void
  readonly isMultiple?: boolean
}) {
  const id = useId()
  const input = useRef<HTMLInputElement>(null)
  const clear = () => {
    onFiles([])
    if (input.current !== null) input.current.value = ''
    input.current?.focus()
  }
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {hint !== undefined && (
        <span id={`${id}-hint`} class="hint">
          {hint}
        </span>
      )}
      <div class="row">
        <input
          ref={input}
          id={id}
          type="file"
          multiple={isMultiple}
          {...(hint === undefined ? {} : { 'aria-describedby': `${id}-hint` })}
          onChange={({ currentTarget }) => onFiles([...(currentTarget.files ?? [])])}
        />
        {files.length > 0 && (
          <button type="button" class="small" onClick={clear}>
            Remove<span class="hidden-text">: {label}</span>
          </button>
        )}
      </div>
      {files.map((file) => (
        <p class="faint" key={`${file.name} ${file.size}`}>
          <FileName file={file} />
        </p>
      ))}
    </div>
  )
}

/** The name is untrusted text. */
export function FileName({ file }: { readonly file: Blob }) {
  const name = file instanceof File ? file.name : 'pasted text'
  return (
    <>
      <OutsideText text={name} isOneLine={true} shownMax={120} />, <Count value={file.size} /> bytes
    </>
  )
}

export function Tick({
  label,
  isTicked,
  onTick,
}: {
  readonly label: ComponentChildren
  readonly isTicked: boolean
  readonly onTick: (isTicked: boolean) => void
}) {
  return (
    <p>
      <label class="tick">
        <input
          type="checkbox"
          checked={isTicked}
          onChange={({ currentTarget }) => onTick(currentTarget.checked)}
        />{' '}
        {label}
      </label>
    </p>
  )
}
