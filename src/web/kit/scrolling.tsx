import type { ComponentChildren } from 'preact'

/** `layout`: further CSS classes. The keyboard must reach what scrolls, so the part takes focus. */
export function Scrolling({
  label,
  layout = '',
  children,
}: {
  readonly label: string
  readonly layout?: string
  readonly children: ComponentChildren
}) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: the keyboard must reach what scrolls.
    <section class={`scroll ${layout}`.trim()} aria-label={label} tabIndex={0}>
      {children}
    </section>
  )
}
