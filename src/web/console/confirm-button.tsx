import type { ComponentChildren } from 'preact'
import { useId, useRef, useState } from 'preact/hooks'
import { ActionState, useAction } from './use-action.tsx'

/**
 * Asks for confirmation before an act that cannot be undone. The dialog shows the error of `act`.
 */
export function ConfirmButton({
  label,
  what,
  title,
  children,
  act,
}: {
  readonly label: string
  /** Screen readers read `label` and then this text as the name of the button. */
  readonly what: string
  readonly title: string
  readonly children: ComponentChildren
  readonly act: () => Promise<void>
}) {
  const dialog = useRef<HTMLDialogElement>(null)
  const id = useId()
  const [isOpen, setIsOpen] = useState(false)
  const action = useAction()

  const open = () => {
    action.reset()
    setIsOpen(true)
    dialog.current?.showModal()
  }
  const close = () => dialog.current?.close()
  const confirm = async () => {
    if (await action.run(act)) close()
  }

  return (
    <>
      <button type="button" class="small" onClick={open} aria-label={`${label} ${what}`}>
        {label}
      </button>
      {/* The dialog may be open again when the event `close` comes. */}
      <dialog
        ref={dialog}
        aria-labelledby={id}
        onClose={() => setIsOpen(dialog.current?.open ?? false)}
      >
        {isOpen && (
          <>
            <h2 id={id}>{title}</h2>
            {children}
            <ActionState action={action} what="Working…" />
            <div class="row">
              <button type="button" onClick={close}>
                Cancel
              </button>
              <button
                type="button"
                class="danger"
                disabled={action.isActing}
                onClick={() => void confirm()}
              >
                {label}
              </button>
            </div>
          </>
        )}
      </dialog>
    </>
  )
}
