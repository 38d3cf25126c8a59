//! TLS of connections to a database on another host: `StorageParameters` of slurmdbd.conf(5).

use rustls::ClientConfig;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files by which a database proves itself, and slurmdbd to it. A connection that is not encrypted is refused where these are
/// given, but for one over a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseTls {
    /// `SSL_CA`: certificates (PEM) of authorities, one of which has signed the database's.
    pub authorities: PathBuf,
    /// `SSL_CERT` and `SSL_KEY` (PEM), where the database asks for them.
    pub identity: Option<ClientFiles>,
}

/// Certificate and key of slurmdbd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFiles {
    /// `SSL_CERT`: the certificate, with those between it and an authority.
    pub certificate: PathBuf,
    /// `SSL_KEY`: its key.
    pub key: PathBuf,
}

/// Why a connection cannot be encrypted.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// An option that is not known, or not carried out.
    #[error("StorageParameters: {0}")]
    Option(String),
    /// A file cannot be used.
    #[error("StorageParameters: {file}: {why}")]
    File {
        /// Path.
        file: String,
        /// Text of the error.
        why: String,
    },
}

impl TlsError {
    fn file(path: &Path, why: impl ToString) -> TlsError {
        TlsError::File {
            file: path.display().to_string(),
            why: why.to_string(),
        }
    }
}

impl DatabaseTls {
    /// Reads `StorageParameters`.
    ///
    /// # Errors
    /// An option is unknown, or lacks another.
    pub fn parse(parameters: &str) -> Result<DatabaseTls, TlsError> {
        let wrong = |why: String| Err(TlsError::Option(why));
        let (mut ca, mut certificate, mut key) = (None, None, None);
        for option in parameters.split(',').map(str::trim) {
            let Some((name, value)) = option.split_once('=') else {
                return wrong(format!("'{option}' is not NAME=PATH"));
            };
            let place = match name.to_ascii_uppercase().as_str() {
                "SSL_CA" => &mut ca,
                "SSL_CERT" => &mut certificate,
                "SSL_KEY" => &mut key,
                "SSL_CAPATH" => {
                    return wrong(
                        "SSL_CAPATH is not supported: name one file by SSL_CA".to_owned(),
                    );
                }
                "SSL_CIPHER" => {
                    return wrong("SSL_CIPHER is not supported: leave it out, TLS 1.2 and 1.3 are used with safe ciphers".to_owned());
                }
                _ => return wrong(format!("'{name}' is unknown")),
            };
            if !value.starts_with('/') {
                return wrong(format!("{name} takes an absolute path, and has '{value}'"));
            }
            *place = Some(PathBuf::from(value));
        }
        let Some(authorities) = ca else {
            return wrong(
                "SSL_CA is missing: without it nobody knows whether it is the database that answers".to_owned(),
            );
        };
        let identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some(ClientFiles { certificate, key }),
            (None, None) => None,
            _ => return wrong("SSL_CERT and SSL_KEY are given both or not at all".to_owned()),
        };
        Ok(DatabaseTls {
            authorities,
            identity,
        })
    }

    /// Reads the files for nothing but errors.
    ///
    /// # Errors
    /// As those of a connection.
    pub fn check(&self) -> Result<(), TlsError> {
        self.client_config().map(drop)
    }

    /// Reads the files.
    ///
    /// # Errors
    /// One cannot be read, or has no certificate or no key.
    pub(crate) fn client_config(&self) -> Result<ClientConfig, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.authorities)? {
            let added = roots.add(certificate);
            added.map_err(|e| TlsError::file(&self.authorities, e))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|e| TlsError::file(&self.authorities, e))?;
        let builder = builder.with_root_certificates(roots);
        let Some(files) = &self.identity else {
            return Ok(builder.with_no_client_auth());
        };
        let key = PrivateKeyDer::from_pem_file(&files.key);
        let key = key.map_err(|e| TlsError::file(&files.key, e))?;
        let config = builder.with_client_auth_cert(certificates(&files.certificate)?, key);
        config.map_err(|e| TlsError::file(&files.certificate, e))
    }
}

/// The certificates of a file, of which there is at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path);
    let all: Result<Vec<_>, _> = read.map_err(|e| TlsError::file(path, e))?.collect();
    let all = all.map_err(|e| TlsError::file(path, e))?;
    match all.is_empty() {
        true => Err(TlsError::file(path, "there is no certificate in it")),
        false => Ok(all),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_others_refused() {
        let ca = DatabaseTls {
            authorities: "/etc/ca.pem".into(),
            identity: None,
        };
        assert_eq!(DatabaseTls::parse("ssl_ca=/etc/ca.pem").unwrap(), ca);
        let all = DatabaseTls::parse("SSL_CERT=/c,SSL_CA=/etc/ca.pem, SSL_KEY=/k").unwrap();
        let files = ClientFiles {
            certificate: "/c".into(),
            key: "/k".into(),
        };
        assert_eq!(
            all,
            DatabaseTls {
                identity: Some(files),
                ..ca
            }
        );
        for wrong in [
            "",
            "SSL_CA",
            "SSL_CA=ca.pem",
            "SSL_CERT=/c,SSL_KEY=/k",
            "SSL_CA=/a,SSL_CERT=/c",
            "SSL_CA=/a,SSL_CAPATH=/b",
            "SSL_CA=/a,SSL_CIPHER=ALL",
            "SSL_CA=/a,POOL=5",
        ] {
            assert!(DatabaseTls::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_file_without_a_certificate_is_refused() {
        let tls = DatabaseTls {
            authorities: "/dev/null".into(),
            identity: None,
        };
        let error = tls.client_config().unwrap_err().to_string();
        assert_eq!(
            error,
            "StorageParameters: /dev/null: there is no certificate in it"
        );
    }
}
