import type { ComponentChildren } from 'preact'
import type { Check } from '../../../attestation/finding.ts'
import { CheckList } from '../kit/check-list.tsx'
import { State } from '../kit/notices.tsx'
import { CHECK_WORDS, OPEN_ADVICE, wordsOf } from './check-words.ts'
import { type LinkState, linkStates } from './link-states.ts'

const TONES = { holds: 'good', broken: 'bad', open: 'open', void: 'open' } as const
const WORDS = {
  holds: 'holds',
  broken: 'broken',
  open: 'not checked',
  void: 'shows nothing here',
} as const

/**
 * The chain from request to block: each link with its state, opening to its checks. `facts`: more
 * about a link in plain words.
 */
export function ChainPicture({
  checks,
  facts,
}: {
  readonly checks: readonly Check<string>[]
  readonly facts: Readonly<Partial<Record<LinkState['name'], ComponentChildren>>>
}) {
  const links = linkStates(checks)
  return (
    <ol class="chain" aria-label="The chain of evidence, from request to block">
      {links.map((link) => (
        <li key={link.name} class={`link ${link.state}`} data-link={link.name}>
          <details open={link.state === 'broken'}>
            <summary>
              <span class="link-title">{link.title}</span>{' '}
              <State tone={TONES[link.state]}>{WORDS[link.state]}</State>{' '}
              <span class="faint">{aboutOf(link)}</span>
            </summary>
            <div class="link-facts">
              {facts[link.name]}
              {link.checks.length === 0 ? (
                <p class="faint">This step has no check here.</p>
              ) : (
                <CheckList
                  checks={link.checks}
                  explain={link.state === 'void' ? explainVoid : explain}
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
  if (state === 'holds') return about
  if (state === 'void') return `depends on a broken step: ${why}`
  return state === 'broken' ? `failed: ${why}` : `not checked: ${why}`
}

/** What passed is true of what was signed, and not of what is shown. */
function explainVoid(): string {
  return 'This is true of something else than what this page shows: an earlier step is broken.'
}

function explain({ name, outcome }: Check<string>): string {
  const shows = wordsOf(name)?.shows ?? ''
  if (outcome === 'passed') return shows
  if (outcome === 'failed') return `This is wrong: “${shows}” The evidence shows something else.`
  const advice = Object.hasOwn(CHECK_WORDS, name)
    ? OPEN_ADVICE[name as keyof typeof OPEN_ADVICE]
    : undefined
  return `This check would show: “${shows}”${advice === undefined ? '' : ` ${advice}`}`
}
