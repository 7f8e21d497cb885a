import type { ComponentChildren } from 'preact'
import { LANGUAGES, type Language } from './samples.ts'

export function LanguageTabs({
  id,
  language,
  onLanguage,
  children,
}: {
  /** Unique on the page. */
  readonly id: string
  readonly language: Language
  readonly onLanguage: (language: Language) => void
  readonly children: ComponentChildren
}) {
  const tabOf = (name: Language) => `${id}-${name}`
  /** Keyboard behaviour of ARIA tabs: the arrow keys choose a tab, the Tab key leaves the row. */
  const move = (event: KeyboardEvent) => {
    const step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0
    const next = LANGUAGES.at((LANGUAGES.indexOf(language) + step) % LANGUAGES.length)
    if (step === 0 || next === undefined) return
    event.preventDefault()
    onLanguage(next)
    document.getElementById(tabOf(next))?.focus()
  }
  return (
    <div class="language-tabs">
      <div role="tablist" aria-label="Language of the sample" onKeyDown={move}>
        {LANGUAGES.map((name) => (
          <button
            key={name}
            id={tabOf(name)}
            type="button"
            role="tab"
            aria-selected={name === language}
            aria-controls={`${id}-panel`}
            tabIndex={name === language ? 0 : -1}
            onClick={() => onLanguage(name)}
          >
            {name}
          </button>
        ))}
      </div>
      <div id={`${id}-panel`} role="tabpanel" aria-labelledby={tabOf(language)}>
        {children}
      </div>
    </div>
  )
}
