import { useMemo } from 'preact/hooks'
import { Hex } from '../kit/values.tsx'
import { OWN_EVIDENCE, readOwnPage } from './saved-file.ts'

/** Shows what a saved page states about itself, and how far to trust these statements. */
export function ThisFile() {
  const own = useMemo(readOwnPage, [])
  return (
    <section class="this-file" aria-labelledby="this-file">
      <h2 id="this-file">This file</h2>
      <p>
        This is a saved page. It works without a network, and connects only to a chain endpoint that
        you name.
      </p>
      {own === null ? (
        <p class="notice warn">This file was changed after it was made. Do not rely on it.</p>
      ) : (
        <>
          <dl class="pairs">
            <dt>Made by</dt>
            <dd>
              Affidavit {own.madeBy.version},{' '}
              {own.madeBy.commit === null ? (
                'commit not known'
              ) : (
                <>
                  commit <Hex value={own.madeBy.commit} digits={40} />
                </>
              )}
            </dd>
            <dt>Verifier</dt>
            <dd>
              SHA-256 <Hex value={own.verifierSha256} digits={64} />
            </dd>
          </dl>
          {own.verifierSha256 !== own.madeBy.verifierSha256 && (
            <p class="notice warn">
              This file names another digest of its verifier: it was changed after it was made. Do
              not rely on it.
            </p>
          )}
        </>
      )}
      <p>
        No file can prove itself: a forged file can show anything, also VERIFIED and this digest.{' '}
        {OWN_EVIDENCE !== null &&
          'If you do not trust the person who gave you the file, drop it on a page that you saved yourself, or use the command line: '}
        {OWN_EVIDENCE !== null && <code>affidavit verify FILE.html</code>}
        {OWN_EVIDENCE !== null && '. '}
        Compare the digest, computed with another program, with the digest that{' '}
        <code>affidavit verifier</code> prints for the same version.
      </p>
    </section>
  )
}
