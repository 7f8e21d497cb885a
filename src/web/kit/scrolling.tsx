import type { ComponentChildren } from 'preact'

/**
 * `layout`: further CSS classes. The section takes the focus, so that the keyboard can scroll it.
 */
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
