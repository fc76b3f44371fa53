// Certificates and their keys as PEM files, made for a test.
#pragma once

#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>

namespace kiln::testing {

class Certificate {
 public:
  /// One for `names`, "DNS:..." or "IP:...", by `issuer`; an authority, signed by itself, where there is no issuer.
  explicit Certificate(const std::string& names, const Certificate* issuer = nullptr)
      : key_(EVP_EC_gen("P-256")), certificate_(X509_new()) {
    X509* made = certificate_.get();
    X509_set_version(made, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(made), ++serial_);
    X509_gmtime_adj(X509_getm_notBefore(made), -3600);
    X509_gmtime_adj(X509_getm_notAfter(made), 3600);
    const std::string name = issuer != nullptr ? "of a test" : "authority " + std::to_string(serial_);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(made), "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
    X509_set_issuer_name(made, X509_get_subject_name(issuer != nullptr ? issuer->certificate_.get() : made));
    X509_set_pubkey(made, key_.get());
    if (issuer == nullptr) add(NID_basic_constraints, "critical,CA:TRUE");
    if (!names.empty()) add(NID_subject_alt_name, names);
    if (X509_sign(made, (issuer != nullptr ? issuer->key_ : key_).get(), EVP_sha256()) == 0)
      throw std::runtime_error("no certificate");
  }
  void write(const std::string& certificate_file, const std::string& key_file = {}) const {
    write_to(certificate_file, [&](FILE* file) { PEM_write_X509(file, certificate_.get()); });
    if (!key_file.empty())
      write_to(key_file,
               [&](FILE* file) { PEM_write_PrivateKey(file, key_.get(), nullptr, nullptr, 0, nullptr, nullptr); });
  }

 private:
  void add(int what, const std::string& value) {
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, what, value.c_str());
    X509_add_ext(certificate_.get(), extension, -1);
    X509_EXTENSION_free(extension);
  }
  template <class Write>
  static void write_to(const std::string& path, Write&& write) {
    FILE* file = std::fopen(path.c_str(), "w");
    if (file == nullptr) throw std::runtime_error("no file " + path);
    write(file);
    std::fclose(file);
  }

  struct Free {
    void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
    void operator()(X509* certificate) const { X509_free(certificate); }
  };
  static inline long serial_ = 0;
  std::unique_ptr<EVP_PKEY, Free> key_;
  std::unique_ptr<X509, Free> certificate_;
};

}  // namespace kiln::testing
