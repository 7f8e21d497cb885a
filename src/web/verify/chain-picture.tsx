import type { ComponentChildren } from 'preact'
import type { Check } from '#attestation/finding.ts'
import { isOfUnknownRoot } from '#attestation/report/unknown-root.ts'
import { CheckList, type CheckView, TONE_OF } from '../kit/check-list.tsx'
import { State, type Tone } from '../kit/notices.tsx'
import { CHECK_WORDS, OPEN_ADVICE, wordsOf } from './check-words.ts'
import { type LinkState, linkStates } from './link-states.ts'

export const LINK_TONES = {
  holds: 'good',
  broken: 'bad',
  open: 'open',
  void: 'open',
  undetermined: 'warn',
} as const satisfies Record<LinkState['state'], Tone>
export const LINK_WORDS = {
  holds: 'holds',
  broken: 'broken',
  open: 'not checked',
  void: 'shows nothing here',
  undetermined: 'not determined',
} as const satisfies Record<LinkState['state'], string>

/**
 * Shows the evidence as a chain of links, from request to block. `missing`: as for linkStates.
 * `facts`: more about a link in plain words. If the evidence depends on a development root, no link
 * is green.
 */
export function ChainPicture({
  checks,
  missing = [],
  facts,
  isDevelopment,
}: {
  readonly checks: readonly Check<string>[]
  readonly missing?: readonly string[]
  readonly facts: Readonly<Partial<Record<LinkState['name'], ComponentChildren>>>
  readonly isDevelopment: boolean
}) {
  const toneOf = (tone: Tone) => (isDevelopment && tone === 'good' ? 'development' : tone)
  const links = linkStates(checks, missing)
  return (
    <ol
      class={`chain ${isDevelopment ? 'development' : ''}`}
      aria-label="The links from request to block"
    >
      {links.map((link) => (
        <li key={link.name} class={`link ${link.state}`} data-link={link.name}>
          <details open={link.state === 'broken'}>
            <summary>
              <span class="link-title">{link.title}</span>{' '}
              <State tone={toneOf(LINK_TONES[link.state])}>{LINK_WORDS[link.state]}</State>{' '}
              <span class="faint">{aboutOf(link)}</span>
            </summary>
            <div class="link-facts">
              {facts[link.name]}
              {link.checks.length === 0 ? (
                <p class="faint">This step has no check here.</p>
              ) : (
                <CheckList
                  checks={link.checks}
                  view={(check) => {
                    const view = link.state === 'void' ? viewVoid(check) : viewCheck(check)
                    return { ...view, tone: toneOf(view.tone) }
                  }}
                />
              )}
            </div>
          </details>
        </li>
      ))}
    </ol>
  )
}

function aboutOf({ state, why, about }: LinkState): string {
  switch (state) {
    case 'holds':
      return about
    case 'void':
      return `depends on a broken step: ${why}`
    case 'undetermined':
      return why
    case 'broken':
      return `failed: ${why}`
    case 'open':
      return `not checked: ${why}`
  }
}

/** The check passed for the signed content, but the page shows other content. */
export function viewVoid({ outcome }: Check<string>): CheckView {
  return {
    tone: 'open',
    word: outcome,
    about: 'This is true of something else than what this page shows: an earlier step is broken.',
  }
}

function viewCheck(check: Check<string>): CheckView {
  const { name, outcome } = check
  const shows = wordsOf(name)?.shows ?? ''
  if (isOfUnknownRoot(check))
    return {
      tone: 'warn',
      word: 'not determined',
      about:
        'The document leads to a root that you do not trust. If you know and trust that root, give it under “Your policy”, “Roots”.',
    }
  const seen = { tone: TONE_OF[outcome], word: outcome }
  if (outcome === 'passed') return { ...seen, about: shows }
  if (outcome === 'failed')
    return { ...seen, about: `This is wrong: “${shows}” The evidence shows something else.` }
  const advice = Object.hasOwn(CHECK_WORDS, name)
    ? OPEN_ADVICE[name as keyof typeof OPEN_ADVICE]
    : undefined
  return {
    ...seen,
    about: `This check would show: “${shows}”${advice === undefined ? '' : ` ${advice}`}`,
  }
}
