import { OutsideText } from '../kit/outside-text.tsx'
import type { Linked } from './link.ts'

/**
 * A policy from a link is a claim of the link's author. The reader decides whether to use it.
 */
export function LinkedNotice({
  linked,
  onUse,
  onLeave,
}: {
  readonly linked: Linked
  readonly onUse: () => void
  readonly onLeave: () => void
}) {
  return (
    <div class="notice warn">
      <p>
        The link that you followed contains a policy. Use it only if you trust the person who gave
        you the link: a forger can choose a policy that fits a forgery.
      </p>
      <dl class="pairs">
        {Object.entries(linked)
          .filter(([, text]) => text !== '')
          .map(([name, text]) => (
            <>
              <dt key={name}>{LINKED_NAMES[name as keyof Linked]}</dt>
              <dd>
                <OutsideText text={text} shownMax={400} />
              </dd>
            </>
          ))}
      </dl>
      <p class="row">
        <button type="button" onClick={onUse}>
          Expect this
        </button>
        <button type="button" onClick={onLeave}>
          Do not
        </button>
      </p>
    </div>
  )
}

const LINKED_NAMES: Readonly<Record<keyof Linked, string>> = {
  releaseKeys: 'Keys that sign releases',
  releaseSigners: 'How many must have signed',
  measurements: 'Measurements',
  configurations: 'Configurations',
}
