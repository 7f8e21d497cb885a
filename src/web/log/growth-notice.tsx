import type { ComponentChildren } from 'preact'
import { OutsideText } from '../kit/outside-text.tsx'
import { CopyButton, Count, Time } from '../kit/values.tsx'
import type { Growth } from './growth.ts'

/** `growth` is null during the check. */
export function GrowthNotice({
  growth,
  notary,
}: {
  readonly growth: Growth | null
  readonly notary: string
}) {
  if (growth === null)
    return <Place tone="">Comparing the log with what this browser saw before…</Place>
  if (growth.kind === 'first')
    return (
      <Place tone="">
        First visit: there is nothing to compare with yet.{' '}
        {growth.isKept
          ? 'This browser keeps the newest head. At your next visit it checks that the log only grew.'
          : 'This browser does not let the page keep anything, so your next visit will also count as the first.'}
      </Place>
    )
  const { since } = growth
  if (growth.kind === 'grew')
    return (
      <Place tone="good">
        <strong>Since your last visit this log only grew: checked.</strong>{' '}
        <SeenAt since={growth.since} />; it has <Count value={growth.size} /> now, and begins with
        all of those.
      </Place>
    )
  if (growth.kind === 'open')
    return (
      <Place tone="warn">
        <strong>Not checked:</strong> <OutsideText text={growth.reason} shownMax={300} /> Trying
        again. {since !== null && <SeenAt since={since} />}
      </Place>
    )
  const proof = JSON.stringify({ notary, seen: since, shown: growth.head }, null, 2)
  return (
    <div class="notice bad growth" role="alert">
      <p>
        <strong>This log does not continue its earlier state.</strong>{' '}
        <OutsideText text={growth.reason} shownMax={300} />.
      </p>
      {since !== null && (
        <p>
          <SeenAt since={since} />. The notary signed that head, and this browser keeps it.
        </p>
      )}
      <p>
        An honest log never does this. Keep both heads, and ask the operator. Do not rely on newer
        evidence from this notary.{' '}
        <CopyButton text={proof} what="both heads, with their signatures" />
      </p>
    </div>
  )
}

function SeenAt({
  since: { size, atMs },
}: {
  readonly since: { readonly size: number; readonly atMs: number }
}) {
  return (
    <>
      On <Time ms={atMs} /> it had <Count value={size} /> leaves
    </>
  )
}

function Place({
  tone,
  children,
}: {
  readonly tone: string
  readonly children: ComponentChildren
}) {
  return (
    <div class={`notice growth ${tone}`}>
      <p>{children}</p>
    </div>
  )
}
