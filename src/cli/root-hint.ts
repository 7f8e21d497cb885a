/** For people: where `npm start` keeps the certificate of the root that its simulated security module uses. */
export const ROOT_HINT =
  'A development enclave? Its root is in DATA_DIR/nsm/root.crt.pem (DATA_DIR is .affidavit unless it is set): --root FILE'

/**
 * Gives the hint as a line when one of these details of failed checks tells root_untrusted, else nothing. They may hold
 * text from outside, which can at most bring the hint about. Reports for programs go without: they have the code.
 */
export function hintAtRoot(details: readonly string[]): string {
  return details.some((detail) => /(^|: |; )root_untrusted: /.test(detail)) ? `${ROOT_HINT}\n` : ''
}
