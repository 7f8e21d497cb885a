import { useEffect, useRef, useState } from 'preact/hooks'
import { saveFile } from '../kit/save-file.ts'
import type { Call, Wanted } from './calls.ts'
import {
  type CallSource,
  EXPORTS,
  type Exported,
  type ExportKind,
  exportCalls,
} from './export-calls.ts'
import { useSession } from './session.ts'
import { ActionState, useAction } from './use-action.tsx'
import type { CallAnchors } from './use-call-anchors.ts'

const KINDS = Object.keys(EXPORTS) as readonly ExportKind[]

/** Saves the selected calls. If none is selected, saves all calls that match the filters. */
export function ExportButtons({
  wanted,
  calls,
  anchors,
}: {
  readonly wanted: Wanted
  readonly calls: readonly Call[]
  readonly anchors: CallAnchors
}) {
  const session = useSession()
  const action = useAction()
  const running = useRef<AbortController | null>(null)
  const [count, setCount] = useState(0)
  const [exported, setExported] = useState<Exported | null>(null)
  const isSelection = calls.length > 0
  const save = (kind: ExportKind) =>
    action.run(async () => {
      const abort = new AbortController()
      running.current = abort
      setCount(0)
      setExported(null)
      const source: CallSource = isSelection ? { calls } : { wanted }
      const { signal } = abort
      try {
        const order = { kind, source, anchors, signal, onCount: setCount }
        const made = await exportCalls(session, order)
        const { extension, type } = EXPORTS[kind]
        const day = new Date().toISOString().slice(0, 10)
        saveFile(`affidavit-${kind}-${day}.${extension}`, made.text, type)
        setExported(made)
      } catch (fault) {
        if (!signal.aborted) throw fault
      }
    })
  useEffect(() => () => running.current?.abort(), [])
  return (
    <>
      <fieldset class="row" aria-label="Export">
        <span class="faint">
          {isSelection ? `Export ${calls.length} selected:` : 'Export all:'}
        </span>
        {KINDS.map((kind) => (
          <button
            key={kind}
            type="button"
            class="small"
            title={EXPORTS[kind].hint}
            disabled={action.isActing}
            onClick={() => void save(kind)}
          >
            {EXPORTS[kind].label}
          </button>
        ))}
        {action.isActing && (
          <button type="button" class="small" onClick={() => running.current?.abort()}>
            Stop, {count} so far
          </button>
        )}
      </fieldset>
      <span class="faint" role="status">
        {exported !== null && savedText(exported)}
      </span>
      <ActionState action={action} what="Writing the file…" />
    </>
  )
}

function savedText({ count, isCut, missing }: Exported): string {
  const left = isCut ? ' More calls match: use more filters for the rest.' : ''
  const without = missing === 0 ? '' : ` ${missing} calls have no evidence here.`
  return `${count} saved.${without}${left}`
}
